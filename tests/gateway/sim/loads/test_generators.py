"""Each generator gives the numbers that its specification publishes."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from statistics import mean

import pytest

from gateway.sim import SimRequest, Workload
from gateway.sim.loads import LoadImpossible, by_name, mooncake, shared_prefix
from gateway.sim.loads.generators.bursts import Bursts, bursts
from gateway.sim.loads.generators.catalogue import CHAT, CODE, CODE_LIGHT, RESEARCH, Kind, from_catalogue
from gateway.sim.loads.generators.conversing import Head, Room, Turn
from gateway.sim.loads.generators.plain import Plain, hot_prefix, no_sharing
from gateway.sim.loads.generators.toolagent import ToolAgent, toolagent
from gateway.sim.loads.merging import in_order_of_time
from gateway.sim.loads.names import Names
from tests.gateway.sim.loads.hit_share import unlimited

CONVERSATION = Path(__file__).parents[4] / "bench/data/traces/mooncake_conversation.jsonl.gz"


def quantile(values: Iterable[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def reuse_within(load: Workload, seconds: float) -> float:
    """The share of reuses of blocks that come no later than this after the last use."""
    last: dict[int, float] = {}
    soon = reuses = 0
    for r in load.requests:
        for name in memoryview(r.chain.hashes).cast("Q"):
            if name in last:
                reuses += 1
                soon += r.at_s - last[name] <= seconds
            last[name] = r.at_s
    return soon / reuses


def turns_of(load: Workload) -> list[int]:
    return list(Counter(r.session for r in load.requests).values())


@pytest.mark.parametrize("name", by_name)
def test_every_built_in_load_is_whole_in_order_and_the_same_again(name: str) -> None:
    load = by_name[name](7)
    before = -1.0
    sessions: dict[int, str] = {}
    for number, r in enumerate(islice(iter(load.requests), 3000)):
        assert r.number == number
        assert r.at_s >= before
        assert len(r.chain) == r.prompt_tokens // load.block_size
        assert r.output_tokens > 0
        assert r.after is None or sessions[r.after] == r.session
        before, sessions[number] = r.at_s, r.session
    assert list(islice(iter(load.requests), 50)) == list(islice(iter(by_name[name](7).requests), 50))


@pytest.mark.parametrize("name", [name for name in by_name if name != "multi-round"])
def test_another_seed_is_another_load(name: str) -> None:
    def first(seed: int) -> list[SimRequest]:
        return list(islice(iter(by_name[name](seed).requests), 50))

    assert first(1) != first(2)


@pytest.mark.parametrize(
    ("name", "requests", "tokens", "output", "hit_share"),
    [
        # All whole blocks of the prefix but those of each group's first prompt; the ladders' prompts come again.
        ("sglang-shared-prefix", 64 * 16, 2176, 256, 2048 / 2176 * 15 / 16),
        ("sglang-31170", 16 * 32, 4224, 256, 4096 / 4224 * 31 / 32),
        ("sglang-21199", 400, 9800, 430, 2544 / 9800 * 399 / 400),
        ("llm-d-37", 6830, 9000, 1000, 1 - (83 * 8000 + 249 * 1000) / (6830 * 9000)),
    ],
)
def test_shared_prefixes_hit_what_arithmetic_says(
    name: str, requests: int, tokens: int, output: int, hit_share: float
) -> None:
    seen = unlimited(by_name[name](1).requests)

    assert (seen.requests, seen.mean_input, seen.mean_output) == (requests, tokens, output)
    assert seen.hit_share == pytest.approx(hit_share, abs=0.001)


def test_the_steep_ladder_climbs_to_sixty_a_second() -> None:
    times = [r.at_s for r in by_name["llm-d-73"](1).requests]

    assert sum(at < 50 for at in times) == pytest.approx(15 * 50, rel=0.15)
    assert sum(at >= max(times) - 25 for at in times) == pytest.approx(60 * 25, rel=0.1)


def test_bounds_of_what_is_in_flight_are_kept() -> None:
    assert by_name["sglang-21199"](1).most_in_flight == 36
    assert by_name["sglang-31170"](1).most_in_flight == 64


def test_unshuffled_prompts_come_group_by_group() -> None:
    load = shared_prefix(2, 2, 32, 16, 1, shuffled=False)
    names = [r.chain.hashes for r in load.requests]

    assert [n[:16] for n in names] == [names[0][:16]] * 2 + [names[2][:16]] * 2
    assert len(set(names)) == 4


def test_users_of_many_rounds_ask_in_turn() -> None:
    requests = list(by_name["multi-round"](1).requests)

    assert len(requests) == 3200
    assert requests[0].prompt_tokens == 21_020
    assert requests[-1].prompt_tokens == 21_020 + 9 * 120
    assert [r.session for r in requests[320:322]] == ["user-0", "user-1"]
    assert requests[320].at_s - requests[0].at_s == pytest.approx(320 / 4)


@pytest.mark.parametrize("recorded", [False, True])
def test_tools_and_agents_have_the_published_mix(recorded: bool) -> None:
    chat = mooncake(CONVERSATION) if recorded else None
    seen = unlimited(toolagent(1, ToolAgent(chat=chat)).requests)

    assert seen.requests == 23_608
    assert seen.mean_input == pytest.approx(8_596, rel=0.06)
    assert seen.mean_output == pytest.approx(182, rel=0.06)
    # Recorded chat is cut at whole blocks; the published 59 % are the most that any cache could do.
    assert 0.53 < seen.hit_share < 0.60


def test_tools_and_agents_end_with_a_recorded_chat() -> None:
    few = Workload("few", 512, list(islice(iter(mooncake(CONVERSATION).requests), 5)))

    assert 5 <= len(list(toolagent(1, ToolAgent(chat=few)).requests)) < 60


@pytest.mark.parametrize(("name", "hit_share", "soon_s"), [("bailian-chat", 0.62, 600), ("bailian-programs", 0.54, 10)])
def test_bailian_reuses_as_much_and_as_soon_as_published(name: str, hit_share: float, soon_s: float) -> None:
    load = by_name[name](1)

    assert unlimited(load.requests).hit_share == pytest.approx(hit_share, abs=0.03)
    assert reuse_within(load, soon_s) == pytest.approx(0.8, abs=0.04)


def test_programs_send_single_turns_and_a_few_send_most() -> None:
    requests = list(by_name["bailian-programs"](1).requests)
    sent = Counter(r.tenant for r in requests)

    assert all(r.after is None for r in requests)
    assert sum(n for _, n in sent.most_common(30)) / len(requests) > 0.5


def test_the_inference_day_has_its_published_shape() -> None:
    load = by_name["inference-day"](1)
    requests = list(load.requests)
    first = [r.prompt_tokens for r in requests if r.after is None]
    turns = turns_of(load)
    outputs = [r.output_tokens for r in requests]
    pauses = [r.think_s for r in requests if r.after is not None]

    assert len(turns) == 1131
    assert mean(turns) == pytest.approx(11.6, rel=0.05)
    assert quantile(turns, 0.5) == pytest.approx(11, abs=1)
    assert quantile(turns, 0.95) == pytest.approx(25, abs=2)
    assert mean(first) == pytest.approx(54_700, rel=0.05)
    assert quantile(first, 0.5) == pytest.approx(47_300, rel=0.03)
    assert quantile(first, 0.99) == pytest.approx(140_000, rel=0.1)
    assert mean(outputs) == pytest.approx(991, rel=0.03)
    assert quantile(outputs, 0.95) == pytest.approx(2_394, rel=0.05)
    assert quantile(pauses, 0.5) == pytest.approx(2.0, abs=0.5)
    assert max(r.prompt_tokens for r in requests) <= 200_000


def test_the_coding_study_has_its_published_shape() -> None:
    load = by_name["coding-study"](1)
    inputs, outputs, pauses = [], [], []
    for r in load.requests:
        inputs.append(r.prompt_tokens)
        outputs.append(r.output_tokens)
        pauses.append(r.think_s)
    turns = turns_of(load)

    assert quantile(turns, 0.5) == pytest.approx(107, rel=0.15)
    assert quantile(turns, 0.9) == pytest.approx(354, rel=0.15)
    assert quantile(inputs, 0.5) == pytest.approx(195_000, rel=0.15)
    assert quantile(inputs, 0.9) == pytest.approx(521_000, rel=0.15)
    assert quantile(outputs, 0.5) == pytest.approx(317, rel=0.05)
    assert quantile(outputs, 0.9) == pytest.approx(1_705, rel=0.05)
    assert quantile(pauses, 0.5) == pytest.approx(2, rel=0.1)
    assert quantile(pauses, 0.9) == pytest.approx(24, rel=0.1)


@pytest.mark.parametrize(
    ("kind", "first_tokens", "turns"),
    # Bounds take away from the tails, so means after them are a little lower than published.
    [(CHAT, 5_050, 4), (CODE_LIGHT, 58_000, 6), (CODE, 160_000, 6), (RESEARCH, 50_000, 15)],
)
def test_conversations_of_the_catalogue_are_as_long_as_published(kind: Kind, first_tokens: int, turns: float) -> None:
    load = from_catalogue(kind, 3)

    assert mean(r.prompt_tokens for r in load.requests if r.after is None) == pytest.approx(first_tokens, rel=0.15)
    assert mean(turns_of(load)) == pytest.approx(turns, rel=0.15)


@pytest.mark.parametrize(("name", "tokens", "output"), [("batch-rag", 17_500, 500), ("reasoning", 1_250, 8_000)])
def test_single_turns_of_the_catalogue_are_as_long_as_published(name: str, tokens: int, output: int) -> None:
    seen = unlimited(by_name[name](1).requests)

    assert seen.requests == 500
    assert seen.mean_input == pytest.approx(tokens, rel=0.1)
    assert seen.mean_output == pytest.approx(output, rel=0.1)


def test_nothing_shared_is_nothing_hit() -> None:
    assert unlimited(by_name["no-sharing"](1).requests).hit_tokens == 0
    assert unlimited(by_name["bursts"](1).requests).hit_tokens == 0


def test_a_hot_prefix_is_in_six_of_ten_prompts() -> None:
    requests = list(by_name["hot-prefix"](1).requests)
    hot = Counter(r.chain.hashes[: 500 * 8] for r in requests if len(r.chain) >= 500).most_common(1)[0][1]

    assert hot / len(requests) == pytest.approx(0.6, abs=0.02)


def test_bursts_swing_with_the_day() -> None:
    load = bursts(1, Bursts(requests=40_000, rate_per_s=10, cv=2, swing=0.8, day_s=2000))
    times = [r.at_s for r in load.requests]

    noon = sum(300 <= at < 700 for at in times)
    night = sum(1300 <= at < 1700 for at in times)
    assert noon > 4 * night


def test_a_rewritten_history_keeps_its_leading_blocks_alone() -> None:
    room = Room(Names(), 16, answer_token_s=0.5)
    turns = [Turn(40, 10), Turn(14, 10, 3.0), Turn(48, 1, 1.0, kept_tokens=33)]

    first, second, third = in_order_of_time([room.converse("s", 2.0, room.head(20), turns)])

    assert [len(r.chain) for r in (first, second, third)] == [3, 5, 5]
    assert second.chain.hashes[:24] == first.chain.hashes
    assert third.chain.hashes[:16] == first.chain.hashes[:16]
    assert third.chain.hashes[16:24] != first.chain.hashes[16:24]
    assert (first.at_s, second.at_s, third.at_s) == (2.0, 10.0, 16.0)
    assert (second.after, third.after, third.think_s) == (0, 1, 1.0)


def test_a_conversation_without_turns_is_no_request() -> None:
    assert list(in_order_of_time([Room(Names(), 16).converse("s", 0.0, Head(b"", 0), [])])) == []


def test_a_load_is_made_while_it_is_read() -> None:
    def endless() -> Iterator[SimRequest]:
        yield from no_sharing(1, Plain(requests=10**12)).requests

    assert len(list(islice(endless(), 10))) == 10


@pytest.mark.parametrize(
    "impossible",
    [
        lambda: shared_prefix(0, 1, 1, 1, 1),
        lambda: shared_prefix(1, 1, -1, 1, 1),
        lambda: hot_prefix(1, hot_share=2),
        lambda: no_sharing(1, Plain(rate_per_s=0)),
        lambda: bursts(1, Bursts(swing=1)),
        lambda: toolagent(1, ToolAgent(chat_share=0.9)),
        lambda: toolagent(1, ToolAgent(chat=shared_prefix(1, 1, 1, 1, 1))),
    ],
)
def test_numbers_that_no_load_can_have_are_refused(impossible: Callable[[], Workload]) -> None:
    with pytest.raises(LoadImpossible, match="no such load"):
        impossible()
