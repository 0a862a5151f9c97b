"""What was asked for, as a load: what cannot be one is refused before anything is sent."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from backends.simulated.serving import ServerSpec, SimulatedServer
from gateway.command_line.progress import nobody
from gateway.measuring.driving import Phase
from gateway.measuring.errors import LoadUnusable
from gateway.measuring.offering import Offered, loaded
from gateway.measuring.shapes import Shape
from gateway.measuring.study import Frame

USUAL = Offered(
    url="http://127.0.0.1:1",
    model="simulated",
    api_key=None,
    clients=None,
    rates=None,
    cv=1.0,
    shape=Shape(),
    load=None,
    trace=None,
    corpus=None,
    phase=Phase(),
    seed=0,
)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"cv": None}, "only a trace or a built-in load"),
        ({"cv": None, "load": "no-sharing", "clients": [4]}, "closed or open"),
        ({"rates": [1.0], "clients": [4]}, "closed or open"),
        ({"rates": [float("inf")]}, "a number of requests a second, more than 0"),
        ({"rates": [1.0, float("nan")]}, "a number of requests a second, more than 0"),
        ({"clients": [0]}, "1 to 65,536 clients"),
        ({"clients": [1, 100_000]}, "1 to 65,536 clients"),
    ],
)
async def test_arrivals_that_cannot_be_are_refused(changed: dict[str, object], why: str) -> None:
    with pytest.raises(LoadUnusable, match=why):
        await loaded(replace(USUAL, **changed), Frame(), nobody)  # type: ignore[arg-type]  # a value of each kind


@pytest.mark.parametrize(
    "line",
    ["{}", '{"messages": []}', '{"prompt": ""}', '{"messages": null}', '{"prompt": "a", "max_tokens": -3}', '{"pro'],
)
async def test_a_chat_without_a_message_is_none(tmp_path: Path, line: str) -> None:
    corpus = tmp_path / "chats.jsonl"
    corpus.write_text(f'{{"prompt": "a"}}\n{line}\n')
    with pytest.raises(LoadUnusable, match="line 2"):
        await loaded(replace(USUAL, corpus=corpus), Frame(), nobody)


async def test_a_trace_that_is_wrong_further_on_is_named_with_its_line(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    row = json.dumps({"timestamp": 0, "input_length": 40, "output_length": 1, "hash_ids": [0]})
    trace.write_text(f"{row}\n" * 300 + '{"timestamp": "noon"}\n')
    wrong = pytest.raises(LoadUnusable, match=r"trace\.jsonl, line 301")
    with SimulatedServer(ServerSpec(speed=20.0)) as server, wrong:
        await loaded(replace(USUAL, url=server.url, trace=trace, clients=[2]), Frame(), nobody)


@pytest.mark.parametrize("second", ['{"timestamp": "noon"}', '{"timestamp": -1}', '{"timestamp": 0}'])
async def test_a_trace_that_is_wrong_soon_or_goes_back_in_time_is_named_with_its_line(
    tmp_path: Path, second: str
) -> None:
    trace = tmp_path / "trace.jsonl"
    row = {"timestamp": 5, "input_length": 40, "output_length": 1, "hash_ids": [0]}
    trace.write_text(f"{json.dumps(row)}\n{json.dumps({**row, **json.loads(second)})}\n")
    with pytest.raises(LoadUnusable, match=r"trace\.jsonl, line 2"):
        await loaded(replace(USUAL, trace=trace, cv=None), Frame(), nobody)
