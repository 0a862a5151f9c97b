"""The traces in bench/data/traces give the numbers that they are known by."""

from pathlib import Path

import pytest

from gateway.sim.loads.azure import azure
from gateway.sim.loads.mooncake import mooncake
from gateway.sim.loads.sessions import sessions
from tests.gateway.sim.loads.hit_share import unlimited

TRACES = Path(__file__).parents[4] / "bench/data/traces"


@pytest.mark.parametrize(
    ("file", "requests", "mean_input", "mean_output", "hit_share"),
    [("mooncake_conversation", 12031, 12035, 343, 0.3736), ("mooncake_synthetic", 3993, 15326, 149, 0.6512)],
)
def test_mooncake_reaches_its_published_hit_share(
    file: str, requests: int, mean_input: int, mean_output: int, hit_share: float
) -> None:
    seen = unlimited(mooncake(TRACES / f"{file}.jsonl.gz", partial_blocks=True).requests)

    assert seen.requests == requests
    assert seen.mean_input == pytest.approx(mean_input, abs=1)
    assert round(seen.mean_output) == mean_output
    assert seen.hit_share == pytest.approx(hit_share, abs=0.001)


def test_whole_blocks_alone_hit_a_little_less() -> None:
    seen = unlimited(mooncake(TRACES / "mooncake_conversation.jsonl.gz").requests)

    assert 0.36 < seen.hit_share < 0.3736


def test_no_two_prompts_of_azure_share_a_block() -> None:
    seen = unlimited(azure(TRACES / "azure2023_conv.jsonl.gz").requests)

    assert (seen.requests, round(seen.mean_input), round(seen.mean_output)) == (19366, 1155, 211)
    assert seen.hit_tokens == 0


@pytest.mark.parametrize(("share_common", "hit_share"), [(False, 0.9623), (True, 0.9632)])
def test_sessions_reach_their_published_hit_share(share_common: bool, hit_share: float) -> None:
    load = sessions(TRACES / "claude_code_sessions_weka.jsonl.gz", share_common=share_common)

    seen = unlimited(load.requests)

    assert (seen.requests, round(seen.mean_input), round(seen.mean_output)) == (31627, 118134, 433)
    assert seen.hit_share == pytest.approx(hit_share, abs=0.001)


def test_six_hours_of_sessions_two_minutes_apart_are_the_published_selection() -> None:
    load = sessions(TRACES / "claude_code_sessions_weka.jsonl.gz", every_s=120, limit_s=6 * 3600)
    requests = list(load.requests)

    assert len(requests) == 7126
    assert len({r.session for r in requests}) == 181
    assert unlimited(requests).hit_share == pytest.approx(0.953, abs=0.001)
