"""What a receipt does to the index, to what is expected next, and to a holder that contradicts it again and again."""

import json
import random
from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from gateway import receipts as module
from gateway.receipts import Receipt, Receipts, Sent, Verdict
from gateway.reliability import WINDOW, Mode, ReliabilityTable
from gateway.telemetry import Telemetry
from prefix_index import Chain, Claim, SharedIndex
from tests.gateway.sent_prompts import BLOCK, HOLDER, SPECULATIVE, TEN, chain
from tests.prefix_index.lru_cache import Clients, LruCache


@dataclass
class Desk:
    """Receipts over an index in process; the clock is set by hand."""

    now_s: float = 100.0
    telemetry: Telemetry = field(default_factory=Telemetry)

    def __post_init__(self) -> None:
        self.index = SharedIndex(None, pool="p", replica="r")
        self.receipts = Receipts(self.index, self.telemetry, lambda: self.now_s)

    async def send(self, prompt: Chain, *, age_s: float | None = 30.0, turnovers: float | None = 0.1) -> Sent:
        """Match and dispatch, as the pipeline does."""
        match = await self.index.match(prompt)
        to = Sent(
            "e0",
            HOLDER,
            prompt,
            self.now_s,
            match.blocks.get(HOLDER, 0),
            match.speculative.get(HOLDER, 0),
            age_s,
            turnovers,
            BLOCK,
        )
        self.index.observe(HOLDER, prompt, SPECULATIVE)
        return to

    def answer(self, to: Sent, reported: int | None) -> Verdict:
        """A first token, then the end."""
        self.receipts.first_token(to)
        self.now_s += 1
        return self.receipts.ended(Receipt(to, True, to.reusable_tokens, reported))

    async def confirmed(self, prompt: Chain) -> int:
        return (await self.index.match(prompt)).blocks.get(HOLDER, 0)

    async def speculative(self, prompt: Chain) -> int:
        return (await self.index.match(prompt)).speculative.get(HOLDER, 0)

    def metric(self, name: str, **labels: str) -> float:
        return self.telemetry.registry.get_sample_value(f"prefixgate_{name}_total", {"endpoint": "e0", **labels}) or 0


async def test_requests_that_come_while_an_answer_is_written_find_its_prompt_confirmed() -> None:
    desk = Desk()
    first = await desk.send(TEN)
    assert (await desk.confirmed(TEN), await desk.speculative(TEN)) == (0, 10)
    desk.receipts.first_token(first)
    assert (await desk.confirmed(TEN), await desk.speculative(TEN)) == (10, 0)
    assert not desk.receipts.ended(Receipt(first, True, 0, 0)).contradicts
    assert await desk.confirmed(TEN) == 10


@pytest.mark.parametrize(("later_s", "again"), [(0.5, False), (1.5, True)])
async def test_what_was_written_at_the_first_token_a_moment_ago_is_not_written_again_at_the_end(
    later_s: float, again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk()
    to = await desk.send(TEN)
    desk.receipts.first_token(to)
    written: list[Claim] = []
    observe = desk.index.observe

    def noted(holder: str, prompt: Chain, claim: Claim = Claim.CONFIRMED) -> None:
        written.append(claim)
        observe(holder, prompt, claim)

    monkeypatch.setattr(desk.index, "observe", noted)
    desk.now_s += later_s
    desk.receipts.ended(Receipt(to, True, 0, 0))
    assert written == [Claim.CONFIRMED] * again
    assert desk.receipts._confirmed == {}


async def test_a_failed_attempt_leaves_what_was_there_and_takes_back_what_it_claimed() -> None:
    desk = Desk()
    desk.answer(await desk.send(chain(0, 1, 2)), 0)
    failed = await desk.send(TEN)
    desk.receipts.ended(Receipt(failed, False, 48, None))
    assert (await desk.confirmed(TEN), await desk.speculative(TEN)) == (3, 0)
    assert desk.metric("receipts", mode="receipts", outcome="not_computed") == 1


async def test_a_loss_that_a_burst_finds_takes_nothing_that_the_burst_computed() -> None:
    desk = Desk()
    shared = (1, 2, 3, 4)
    desk.answer(await desk.send(chain(*shared, 9)), 0)
    one, other = chain(*shared, 5, 6), chain(*shared, 7, 8)
    sent_one, sent_other = await desk.send(one), await desk.send(other)
    for to in (sent_one, sent_other):
        desk.receipts.first_token(to)
    assert desk.receipts.ended(Receipt(sent_one, True, 64, 0)).contradicts
    assert await desk.confirmed(chain(*shared, 9)) == 4  # its tail is gone
    assert desk.receipts.ended(Receipt(sent_other, True, 64, 0)).contradicts
    assert (await desk.confirmed(one), await desk.confirmed(other)) == (6, 6)
    desk.now_s += 10
    desk.answer(await desk.send(other), 0)  # lost once more, later: written once more
    assert (await desk.confirmed(one), await desk.confirmed(other)) == (4, 6)


async def test_losses_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_LOSSES", 2)
    desk = Desk()
    for number in range(0, 40, 4):
        prompt = chain(*range(number, number + 4))
        desk.answer(await desk.send(prompt), 0)
        desk.answer(await desk.send(prompt), 0)
    assert len(desk.receipts._losses) == 2


async def test_an_engine_that_always_reports_a_block_less_is_soon_understood() -> None:
    desk = Desk()
    system = tuple(range(10))
    desk.answer(await desk.send(chain(*system, 90)), 0)
    for turn in range(module.HABIT_RUN + 1):
        contradicted = desk.answer(await desk.send(chain(*system, 100 + turn)), 9 * BLOCK).contradicts
        assert contradicted == (turn < module.HABIT_RUN)
    assert desk.receipts.habit_tokens("e0", BLOCK) == BLOCK
    assert await desk.confirmed(chain(*system, 103)) == 11  # no longer cut by its siblings
    desk.answer(await desk.send(chain(*system, 200)), 10 * BLOCK)
    assert desk.receipts.habit_tokens("e0", BLOCK) == 0


async def test_three_prefixes_that_should_be_there_and_are_not_end_the_holders_generation() -> None:
    desk = Desk()
    prompts = [chain(*range(number, number + 8)) for number in range(0, 48, 8)]
    for prompt in prompts:
        desk.answer(await desk.send(prompt), 0)
    desk.now_s += 60
    verdicts = []
    for prompt in prompts[:3]:
        verdicts.append(desk.answer(await desk.send(prompt), 0))
        desk.now_s += 1
    assert [one.restarted for one in verdicts] == [False, False, True]
    assert [await desk.confirmed(prompt) for prompt in prompts] == [0, 0, 8, 0, 0, 0]
    assert desk.metric("inferred_restarts") == 1
    overall = desk.receipts.as_json()["overall"]
    assert isinstance(overall, dict)
    assert overall["inferred_restarts"] == 1


async def test_what_was_cleared_by_others_meanwhile_is_no_restart() -> None:
    desk = Desk()
    prompts = [chain(*range(number, number + 8)) for number in range(0, 24, 8)]
    for prompt in prompts:
        desk.answer(await desk.send(prompt), 0)
    under_way = [await desk.send(prompt) for prompt in prompts]
    desk.now_s += 1
    desk.receipts.cleared(HOLDER)
    assert [desk.answer(to, 0).restarted for to in under_way] == [False] * 3


async def test_where_events_are_followed_a_gap_is_counted_and_no_generation_ends() -> None:
    desk = Desk()
    for number in range(0, 80, 8):
        prompt = chain(*range(number, number + 8))
        desk.index.observe(HOLDER, prompt)
        to = replace(await desk.send(prompt), followed=True)
        assert not desk.answer(to, 0).restarted
        assert (await desk.confirmed(prompt), await desk.speculative(prompt)) == (8, 0)
    assert desk.metric("receipts", mode="events", outcome="less") == 10
    assert desk.receipts.probability("e0", None, None) < 0.5  # events that miss this much are not to be relied on


async def test_short_runs_teach_and_prove_nothing() -> None:
    desk = Desk()
    for number in range(20):
        desk.index.observe(HOLDER, chain(number))
        assert not desk.answer(await desk.send(chain(number, 99)), 0).restarted
    assert desk.receipts.probability("e0", 30.0, 0.1) < 0.3


async def test_expected_and_reported_tokens_and_their_difference_are_counted() -> None:
    desk = Desk()
    to = await desk.send(TEN)
    desk.receipts.ended(Receipt(to, True, 100, 60))
    desk.receipts.ended(Receipt(to, True, 0, 32))
    desk.receipts.ended(Receipt(to, True, None, 32))
    desk.receipts.ended(Receipt(to, True, 32, None))
    desk.receipts.ended(Receipt(replace(to, exact=False), True, 32, 32))
    kinds = ("prompt", "expected", "reported", "too_many", "too_few")
    counted = [desk.metric("expected_vs_reported", mode="receipts", kind=kind) for kind in kinds]
    assert counted == [330, 100, 92, 40, 32]
    table = json.loads(json.dumps(desk.receipts.as_json()))
    total = table["overall"]["total"]
    assert total["mean_absolute_error_percent"] == pytest.approx(100 * 72 / 330)
    assert table["endpoints"][0]["receipts"]["unreported"] == 1
    assert (table["endpoints"][0]["endpoint"], table["endpoints"][0]["mode"]) == ("e0", "receipts")


async def test_an_endpoint_that_was_removed_leaves_only_its_vote() -> None:
    desk = Desk()
    desk.receipts.dispatched(await desk.send(chain(1, 2)), 1000)
    desk.now_s += 10
    assert desk.receipts.turnovers("e0", 10.0, 1000) == pytest.approx(1.0, rel=0.7)
    assert desk.receipts.turnovers("e0", 10.0, None) is None
    desk.receipts.removed("e0", HOLDER)
    assert desk.receipts.turnovers("e0", 10.0, 1000) is None


def test_the_window_looks_back_on_the_last_answers_and_the_totals_on_all() -> None:
    table = ReliabilityTable()
    for _ in range(WINDOW):
        table.compare("e0", Mode.RECEIPTS, 100, 50, 0)
    for _ in range(WINDOW):
        table.compare("e1", Mode.EVENTS, 100, 50, 50)
    table.compare("e0", Mode.RECEIPTS, 100, 50, 50)
    shown = json.loads(json.dumps(table.as_json()))
    assert shown["overall"]["window"]["mean_absolute_error_percent"] == 0
    assert shown["overall"]["total"]["mean_absolute_error_percent"] == pytest.approx(25, abs=0.1)
    assert [one["endpoint"] for one in shown["endpoints"]] == ["e0", "e1"]
    assert shown["endpoints"][0]["window"]["answers"] == WINDOW
    assert shown["endpoints"][0]["window"]["too_many_tokens"] == 50 * (WINDOW - 1)
    assert ReliabilityTable().as_json()["survival"] == []


@pytest.mark.parametrize("capacity", [2000, 20_000])
async def test_over_an_engine_that_evicts_expectations_miss_by_little_and_nothing_is_taken_for_a_restart(
    capacity: int,
) -> None:
    """The whole loop: match, survival, expectation, receipt, against an LRU cache."""
    desk = Desk()
    rng = random.Random(3)
    clients, cache = Clients(rng, prompts=120), LruCache(capacity)
    used_s: dict[int, float] = {}
    errors = prompt_tokens = 0
    for visit in clients.visits(cache, 3000):
        desk.now_s = visit.at_s
        prompt = chain(*(visit.prompt * 1000 + at for at in range(visit.blocks)), rest_tokens=1)
        age_s = None if visit.prompt not in used_s else visit.at_s - used_s[visit.prompt]
        to = await desk.send(prompt, age_s=age_s, turnovers=desk.receipts.turnovers("e0", age_s, capacity * BLOCK))
        likely = desk.receipts.probability("e0", to.age_s, to.turnovers) >= 0.5
        expected = to.reusable_tokens if likely else 0
        desk.receipts.dispatched(to, prompt.prompt_tokens - visit.reported * BLOCK)
        desk.receipts.first_token(to)
        found = desk.receipts.ended(Receipt(to, True, expected, visit.reported * BLOCK))
        assert not found.restarted
        used_s[visit.prompt] = visit.at_s
        errors += abs(expected - visit.reported * BLOCK)
        prompt_tokens += prompt.prompt_tokens
    table = desk.receipts.as_json()["overall"]
    assert isinstance(table, dict)
    assert table["total"]["mean_absolute_error_percent"] == pytest.approx(100 * errors / prompt_tokens, abs=0.01)
    assert errors / prompt_tokens < 0.06


async def test_speculation_that_attempts_share_goes_with_the_last_of_them() -> None:
    desk = Desk()
    prompt = chain(1, 2, 3)
    first = await desk.send(prompt)
    desk.receipts.dispatched(first, 0)
    second = await desk.send(prompt)  # finds the whole prompt speculative already
    desk.receipts.dispatched(second, 0)
    third = await desk.send(prompt)
    desk.receipts.dispatched(third, 0)
    desk.receipts.ended(Receipt(first, began=False))
    desk.index.observe(HOLDER, prompt, SPECULATIVE)  # as the next attempt makes it, before it has ended
    desk.receipts.ended(Receipt(third, began=False))
    assert (await desk.index.match(prompt)).speculative == {HOLDER: 3}
    desk.receipts.ended(Receipt(second, began=False))
    assert (await desk.index.match(prompt)).speculative == {}


async def test_recent_work_is_set_right_by_what_the_engine_reports() -> None:
    desk = Desk()
    to = await desk.send(TEN)
    noted = to.chain.prompt_tokens - 64
    desk.receipts.dispatched(to, noted)
    assert desk.receipts.recent_work.tokens_of("e0") == pytest.approx(noted, rel=0.01)
    desk.receipts.ended(Receipt(to, True, 0, 32, noted))
    assert desk.receipts.recent_work.tokens_of("e0") == pytest.approx(to.chain.prompt_tokens - 32, rel=0.01)
