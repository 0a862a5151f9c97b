"""Command lines become loads and fleets, or a sentence that says what would do."""

import gzip
from itertools import islice
from pathlib import Path

import pytest

from backends.simulated import PRESETS, Role
from gateway.sim.asked import AskedWrong, FleetAsked, LoadAsked, load_of, plan_of
from gateway.sim.fleet import What
from gateway.sim.loads import WorkloadError, by_name
from prefix_index import coarser

LLAMA = PRESETS["llama_8b_h100"]


def times(asked: LoadAsked, most: int = 50) -> list[float]:
    return [request.at_s for request in islice(load_of(asked, 0).requests, most)]


def test_a_load_is_as_its_generator_makes_it() -> None:
    asked = list(islice(load_of(LoadAsked("llm-d-73"), 5).requests, 20))
    assert asked == list(islice(by_name["llm-d-73"](5).requests, 20))


def test_a_file_is_a_load(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl.gz"
    path.write_bytes(
        gzip.compress(b'{"timestamp": 500, "input_length": 600, "output_length": 3, "hash_ids": [1, 2]}\n')
    )
    load = load_of(LoadAsked(trace=path), 0)
    (request,) = load.requests
    assert (load.block_size, request.at_s, request.prompt_tokens, request.output_tokens) == (512, 0.5, 600, 3)


@pytest.mark.parametrize("name", ["no-sharing", "hot-prefix"])
def test_of_what_has_no_end_there_are_as_many_requests_as_are_asked_for(name: str) -> None:
    assert sum(1 for _ in load_of(LoadAsked(name, limit_requests=10_007), 0).requests) == 10_007
    assert sum(1 for _ in load_of(LoadAsked(name, limit_requests=7), 0).requests) == 7


def test_arrivals_have_the_rate_or_the_speed_that_is_asked_for() -> None:
    recorded = times(LoadAsked("llm-d-73"))
    assert times(LoadAsked("llm-d-73", speed=2.0)) == [at_s / 2 for at_s in recorded]
    for arrivals in ("poisson", "bursty"):
        asked = LoadAsked("no-sharing", arrivals=arrivals, rate_per_s=50.0, limit_requests=5000)
        assert times(asked, 5000)[-1] == pytest.approx(100.0, rel=0.2)
    assert max(times(LoadAsked("llm-d-73", limit_seconds=3.0), 10_000)) < 3.0


def test_loops_are_closed_by_turns_or_by_a_number_in_flight() -> None:
    turns = load_of(LoadAsked("multi-round", closed_loop=True), 0)
    assert (turns.closed_loop, turns.most_in_flight) == (True, None)
    crowd = load_of(LoadAsked("multi-round", concurrency=7), 0)
    assert (crowd.closed_loop, crowd.most_in_flight) == (True, 7)


def test_larger_blocks_are_made_of_the_loads_own() -> None:
    fine, coarse = load_of(LoadAsked("llm-d-73"), 0), load_of(LoadAsked("llm-d-73", block_size=64), 0)
    assert coarse.block_size == 64
    for one, other in zip(islice(fine.requests, 5), coarse.requests, strict=False):
        assert other.chain == coarser(one.chain, 64)
        assert (other.at_s, other.output_tokens) == (one.at_s, one.output_tokens)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (LoadAsked(), "--load NAME, --trace FILE"),
        (LoadAsked("llm-d-73", trace=Path("x")), "--load NAME, --trace FILE"),
        (LoadAsked("llm-d"), "there are .*llm-d-73"),
        (LoadAsked("llm-d-73", rate_per_s=3.0), "recorded ones have --speed"),
        (LoadAsked("llm-d-73", arrivals="poisson"), "needs --rate"),
        (LoadAsked("llm-d-73", arrivals="bursty", rate_per_s=1.0, speed=2.0), "--speed is for recorded"),
        (LoadAsked("llm-d-73", block_size=24), "blocks of 16 tokens"),
        (LoadAsked("llm-d-73", block_size=8), "blocks of 16 tokens"),
    ],
)
def test_a_load_that_cannot_be_is_refused(asked: LoadAsked, words: str) -> None:
    with pytest.raises(AskedWrong, match=words):
        load_of(asked, 0)


def test_numbers_that_no_arrivals_have_are_refused() -> None:
    with pytest.raises(WorkloadError):
        load_of(LoadAsked("llm-d-73", speed=0.0), 0)


def test_a_fleet_is_so_many_of_a_preset() -> None:
    plan = plan_of(FleetAsked(endpoints=3, engine="llama_8b_h100"), 16)
    assert list(plan.specs) == [LLAMA] * 3


def test_a_fleet_has_engines_of_several_kinds() -> None:
    fleet = ("2x llama_8b_h100, qwen3_32b_2xh100", "3 x reference_cpu")
    names = ["llama_8b_h100"] * 2 + ["qwen3_32b_2xh100"] + ["reference_cpu"] * 3
    assert [spec.perf for spec in plan_of(FleetAsked(fleet), 16).specs] == [PRESETS[name].perf for name in names]


def test_a_fleet_may_split_the_work() -> None:
    specs = plan_of(FleetAsked(("1x llama_8b_h100:prefill, 2x llama_8b_h100:decode, llama_8b_h100",)), 16).specs
    assert [spec.role for spec in specs] == [Role.PREFILL, Role.DECODE, Role.DECODE, Role.BOTH]


def test_what_is_asked_for_holds_for_every_engine_in_the_blocks_of_the_load() -> None:
    asked = FleetAsked(endpoints=2, capacity_tokens=100_000, prefill_tokens_per_s=1234.0, host_tokens=5_000)
    for spec in plan_of(asked, 512).specs:
        assert (spec.block_size, spec.capacity_blocks, spec.host_blocks) == (512, 195, 9)
        assert spec.perf.prefill_tokens_per_s == 1234.0
    assert plan_of(FleetAsked(engine="llama_8b_h100"), 64).specs[0].capacity_blocks == LLAMA.capacity_blocks // 4


def test_restarts_have_an_endpoint_and_a_time() -> None:
    happenings = plan_of(FleetAsked(restarts=("1@60", "0@7.5")), 16).happenings
    assert [(one.endpoint, one.at_s, one.what) for one in happenings] == [
        (1, 60.0, What.RESTART),
        (0, 7.5, What.RESTART),
    ]


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (FleetAsked(endpoints=0), "at least one engine"),
        (FleetAsked(engine="h100"), "there are .*llama_8b_h100"),
        (FleetAsked(("4x h100",)), "there are .*llama_8b_h100"),
        (FleetAsked(("0x llama_8b_h100",)), "at least one engine"),
        (FleetAsked(("2x llama_8b_h100", "")), "written as"),
        (FleetAsked(("four llamas!",)), "written as"),
        (FleetAsked(("2x llama_8b_h100:prefill",)), "decode engines"),
        (FleetAsked(("2x llama_8b_h100, llama_8b_h100:decode",)), "prefill engines"),
        (FleetAsked(capacity_tokens=15), "not even one block"),
        (FleetAsked(host_tokens=-1), "not negative"),
        (FleetAsked(prefill_tokens_per_s=0.0), "more than 0"),
        (FleetAsked(restarts=("0",)), "ENDPOINT@SECONDS"),
        (FleetAsked(restarts=("e0@4",)), "ENDPOINT@SECONDS"),
        (FleetAsked(restarts=("4@4",)), "endpoints are 0 to 3"),
        (FleetAsked(restarts=("0@nan",)), "seconds not negative"),
    ],
)
def test_a_fleet_that_cannot_be_is_refused(asked: FleetAsked, words: str) -> None:
    with pytest.raises(AskedWrong, match=words):
        plan_of(asked, 16)
