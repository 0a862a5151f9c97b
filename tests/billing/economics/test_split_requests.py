"""Requests whose prompt one endpoint computed and whose answer another wrote: the seconds lie where they were spent."""

from datetime import timedelta
from pathlib import Path

from msgspec.structs import replace

from billing import Attempt, Usage, open_ledger
from billing.economics import CostReport, cost_report, ledgers
from billing.when import to_us
from tests.billing.economics.fleet import Asked, costs, moment, rate, write
from tests.billing.samples import book, opened, price, settled

BOTH = Usage(1000, 800, 100)


async def write_split(path: Path, name: str, *, in_vain: bool = False) -> None:
    """Prompt at gpu-p from 0 to 2 s, answer at gpu-a from 2 to 11 s; where it was in vain, another time before that."""
    legs = [("gpu-p", 0, 2, "prefilled"), ("gpu-a", 2, 11, "answered")]
    if in_vain:
        legs = [("gpu-p", 0, 1, "prefilled_in_vain"), ("gpu-p", 1, 2, "prefilled"), *legs[1:]]
    attempts = tuple(
        Attempt(name, number, endpoint, moment(began), moment(ended), outcome, 200)
        for number, (endpoint, began, ended, outcome) in enumerate(legs)
    )
    done = settled(name, BOTH, at=moment(11), attempts=attempts)
    async with open_ledger(path, book(price())) as ledger:
        await ledger.open(opened(name, at=moment(0)))
        await ledger.settle(
            replace(
                done,
                endpoint_id="gpu-a",
                prefill_s=2.0,
                decode_s=9.0,
                prefill_endpoint_id="gpu-p",
                prefill_cached_tokens=800,
                decode_cached_tokens=800,
            )
        )


def account(path: Path) -> CostReport:
    with ledgers([path]) as found:
        return cost_report(
            found, costs(rate(), rate("gpu-p")), to_us(moment(0)), to_us(moment(0) + timedelta(seconds=60))
        )


async def test_each_endpoint_has_its_own_part_and_tokens_are_counted_once(ledger_path: Path) -> None:
    await write_split(ledger_path, "r1")
    report = account(ledger_path)
    spent = {one.endpoint_id: next(iter(one.spent.values())) for one in report.account.endpoints}
    at_p, at_d = spent["gpu-p"], spent["gpu-a"]
    assert (at_p.prefill_us, at_p.decode_us, at_d.prefill_us, at_d.decode_us) == (2_000_000, 0, 0, 9_000_000)
    assert (at_p.fresh_tokens, at_p.cached_tokens, at_p.output_tokens) == (200, 800, 0)
    assert (at_d.fresh_tokens, at_d.cached_tokens, at_d.output_tokens) == (0, 0, 100)
    assert at_p.output_pico == at_d.prefill_pico == 0
    assert at_p.prefill_pico > 0
    assert at_d.output_pico > 0
    assert at_d.context_pico > 0, "the prompt is read in each step of its answer"
    assert (at_p.measured_calls, at_d.measured_calls) == (1, 0)
    assert at_p.lost_calls == at_d.lost_calls == 0
    assert sum(one.busy_pico for one in report.account.endpoints) == at_p.busy_pico + at_d.busy_pico


async def test_what_was_computed_in_vain_is_lost_and_not_counted_twice(ledger_path: Path) -> None:
    await write_split(ledger_path, "r1", in_vain=True)
    at_p = next(
        next(iter(one.spent.values())) for one in account(ledger_path).account.endpoints if one.endpoint_id == "gpu-p"
    )
    assert (at_p.measured_calls, at_p.lost_calls, at_p.fresh_tokens) == (1, 1, 200)


async def test_others_are_as_they_were(ledger_path: Path) -> None:
    await write(ledger_path, [Asked("r1", usage=BOTH)])
    [one] = [one for one in account(ledger_path).account.endpoints if one.spent]
    [spent] = one.spent.values()
    assert (spent.measured_calls, spent.fresh_tokens, spent.output_tokens) == (1, 200, 100)
