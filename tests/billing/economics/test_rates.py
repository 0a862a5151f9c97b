"""The costs file: what it says is read exactly, and what it cannot mean is refused."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.economics import CostBook
from billing.economics.rates import HOUR_US, KvReading
from billing.errors import CostsInvalid
from billing.money import PICO
from billing.when import to_us
from tests.billing.economics.fleet import moment, rate

RENTED = "{endpoint: a, gpu_type: H100, per_gpu_hour: 2.50, from: 2026-11-01}"


def load(tmp_path: Path, text: str) -> CostBook:
    path = tmp_path / "costs.yaml"
    path.write_text(text)
    return CostBook.load(path)


def of(tmp_path: Path, entry: str) -> CostBook:
    return load(tmp_path, f"currency: USD\nendpoints:\n  - {entry}\n")


def test_a_rented_endpoint_costs_its_gpus_times_their_price(tmp_path: Path) -> None:
    (one,) = of(tmp_path, "{endpoint: a, gpu_type: H100, gpus: 8, per_gpu_hour: 2.55, from: 2026-11-01}").rates
    assert one.pico_per_hour == Fraction("20.4") * PICO
    assert not one.owned


def test_an_owned_endpoint_costs_its_loss_of_value_its_power_and_its_place(tmp_path: Path) -> None:
    owned = (
        "{price_per_gpu: 9000, residual_per_gpu: 1000, life_years: 4, watts_per_gpu: 350, pue: 1.4, per_kwh: 0.14,"
        " other_per_gpu_hour: 0.10}"
    )
    (one,) = of(tmp_path, f"{{endpoint: a, gpu_type: L40S, gpus: 2, owned: {owned}, from: 2026-11-01}}").rates
    hour = Fraction(8000, 4 * 8766) + Fraction(350, 1000) * Fraction("1.4") * Fraction("0.14") + Fraction("0.1")
    assert one.pico_per_hour == 2 * hour * PICO
    assert one.owned


def test_the_part_of_decoding_that_reads_kv_is_fixed_or_follows_from_sizes(tmp_path: Path) -> None:
    plain = of(tmp_path, RENTED).rates[0].kv
    said = of(tmp_path, RENTED.replace("per_gpu", "decode_kv_share: 0.25, per_gpu")).rates[0].kv
    sized = of(tmp_path, RENTED.replace("per_gpu", "weight_bytes: 3000, kv_bytes_per_token: 10, per_gpu")).rates[0].kv
    assert (plain.is_fixed, plain.of(Fraction(10**6))) == (True, Fraction(1, 10))
    assert (said.is_fixed, said.of(Fraction(0))) == (True, Fraction(1, 4))
    assert (sized.is_fixed, sized.of(Fraction(100))) == (False, Fraction(1, 4))
    assert KvReading(weight_bytes=1, kv_bytes_per_token=1).of(Fraction(0)) == 0


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ("{endpoint: a, gpu_type: H100, from: 2026-11-01}", "one of them"),
        (RENTED.replace("per_gpu", "owned: {price_per_gpu: 1, life_years: 1}, per_gpu"), "one of them"),
        (RENTED.replace("2.50", "-1"), "greater than or equal to 0"),
        (RENTED.replace("2.50", "nan"), "per_gpu_hour"),
        (RENTED.replace("2026-11-01", "soon"), "not a date"),
        (RENTED.replace("}", ", to: 2026-11-01}"), "must be after"),
        (RENTED.replace("gpu_type", "gpu"), "gpu"),
        (RENTED.replace("}", ", gpus: 0}"), "greater than 0"),
        (RENTED.replace("}", ", weight_bytes: 7}"), "or neither"),
        (RENTED.replace("}", ", decode_kv_share: 2}"), "less than or equal to 1"),
        (
            RENTED.replace("}", ", decode_kv_share: 0.1, weight_bytes: 7, kv_bytes_per_token: 7}"),
            "bytes that it follows",
        ),
        (RENTED.replace("}", ", endpoint: b}"), "stands twice"),
        (
            RENTED.replace("per_gpu_hour: 2.50", "owned: {price_per_gpu: 1, residual_per_gpu: 2, life_years: 1}"),
            "above price_per_gpu",
        ),
        ("{endpoint: a, gpu_type: x, per_gpu_hour: 1, from: [2026]}", "a date or time"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_place(tmp_path: Path, entry: str, why: str) -> None:
    with pytest.raises(CostsInvalid, match=why) as refused:
        of(tmp_path, entry)
    assert "costs.yaml" in str(refused.value)


@pytest.mark.parametrize(
    "text", ["", "- 1", "currency: usd\nendpoints: []", "currency: USD", "a: [", "currency: USD\nx: 1"]
)
def test_a_file_of_another_form_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(CostsInvalid):
        load(tmp_path, text)


def test_a_file_that_is_missing_is_said(tmp_path: Path) -> None:
    with pytest.raises(CostsInvalid, match="cannot be read"):
        CostBook.load(tmp_path / "nowhere.yaml")


def test_rates_of_one_endpoint_must_not_overlap(tmp_path: Path) -> None:
    text = f"currency: USD\nendpoints:\n  - {RENTED}\n  - {RENTED.replace('11-01', '12-01')}\n"
    with pytest.raises(CostsInvalid, match="end the earlier with `to: 2026-12-01"):
        load(tmp_path, text)


def test_each_moment_has_one_rate_or_none(tmp_path: Path) -> None:
    one = RENTED.replace("}", ", to: 2026-11-10}")
    two = RENTED.replace("2.50", "3").replace("11-01", "11-20")
    book = load(tmp_path, f"currency: USD\nendpoints:\n  - {one}\n  - {two}\n")

    def rate_at(day: int) -> int | None:
        found = book.rate_at("a", to_us(moment(0)) + (365 + day - 15) * 24 * HOUR_US)
        return None if found is None else round(found.pico_per_hour / PICO * 100)

    assert [rate_at(day) for day in (-20, 5, 12, 25)] == [None, 250, None, 300]
    assert book.rate_at("other", 0) is None


@given(st.lists(st.integers(0, 10**16), min_size=3, max_size=3), st.fractions(0, 10**15, max_denominator=997))
def test_the_costs_of_adjacent_spans_add_up(times: list[int], per_hour: Fraction) -> None:
    one = replace(rate(), pico_per_hour=per_hour)
    first, second, third = sorted(times)
    assert one.cost_pico(first, second) + one.cost_pico(second, third) == one.cost_pico(first, third)
    assert abs(one.cost_pico(first, third) - per_hour * (third - first) / HOUR_US) < 1


def test_a_period_is_cut_at_every_hour_and_change_of_rate() -> None:
    start = to_us(moment(0)) + 60 * 10**6
    book = CostBook("USD", (rate(since=moment(5400)),))
    found = list(book.cuts("gpu-a", start, start + 2 * HOUR_US))
    assert [(one - start) // 10**6 for one, _ in found] == [0, 3540, 5340, 7140]
    assert found[-1][1] == start + 2 * HOUR_US
    assert list(book.cuts("gpu-x", start, start + 1)) == [(start, start + 1)]
