"""The benchmark of the relay: its engine streams, its clients count, its figures are put together rightly."""

import asyncio
import json
import math
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, replace
from xml.etree import ElementTree

import httpx
import pytest

from bench.overhead_prompts import Ask
from bench.relay import IMAGE, PAGE
from bench.relay_load import Streams
from bench.relay_report import BEGIN, END, Figures, Row, goals, line, page_part, part_of, plot, with_part
from bench.relay_routers import Running
from bench.relay_runs import PACED, UNPACED, beside, closing, holds, request_maker
from bench.relay_runs import Row as Measured
from bench.result import RESULTS
from bench.stream_backend import streaming_engines
from tests.until import until

FILE = RESULTS / "relay.json"
USAGE = {"prompt_tokens": 464, "completion_tokens": 20, "total_tokens": 484}
ASK = Ask("s", '{"messages":"', '","max_tokens":64,"temperature":0.2}', 464, 432, 20)


@asynccontextmanager
async def engine() -> AsyncIterator[str]:
    """An engine that streams, until the block ends."""
    async with streaming_engines("m", USAGE, 1) as [port]:
        yield f"http://127.0.0.1:{port}"


@pytest.mark.parametrize("seed", [0, 1])
async def test_the_engine_streams_so_many_chunks_its_usage_and_the_end(seed: int) -> None:
    async with engine() as url, httpx.AsyncClient() as client:
        body = {"max_tokens": 7, "seed": seed, "messages": []}
        answer = await client.post(f"{url}/v1/chat/completions", json=body)
    *events, last, usage, done, nothing = answer.text.split("\n\n")
    chunks = [json.loads(event.removeprefix("data: ")) for event in events]
    assert "".join(chunk["choices"][0]["delta"]["content"] for chunk in chunks) == 7 * " word"
    times = [int(chunk["system_fingerprint"].removeprefix("@")) for chunk in chunks]
    assert times == sorted(times)
    assert json.loads(last.removeprefix("data: "))["choices"][0]["finish_reason"] == "length"
    assert json.loads(usage.removeprefix("data: "))["usage"] == USAGE
    assert (done, nothing) == ("data: [DONE]", "")


async def test_the_engine_answers_what_routers_ask_it() -> None:
    async with engine() as url, httpx.AsyncClient() as client:
        models = (await client.get(f"{url}/v1/models")).json()
        assert [model["id"] for model in models["data"]] == ["m"]
        assert (await client.get(f"{url}/health")).status_code == 200
        assert (await client.get(f"{url}/nowhere")).status_code == 404
        assert (await client.post(f"{url}/v1/chat/completions", content=b"{}")).status_code == 400


@pytest.mark.parametrize("paced", [True, False])
async def test_clients_count_what_comes_and_ask_again(paced: bool) -> None:
    async with engine() as url:
        running = Running("direct", url, "key", ())
        streams = Streams(url, request_maker(ASK, running, paced=paced), 3, random.Random(1))
        with closing(streams):
            streams.record()
            await streams.open(2, 1000, staggered=False)
            await until(lambda: streams.answers >= 6)
            assert streams.failures == 0
            assert streams.chunks >= 18
            assert len(streams.gaps) >= 12
            assert all(gap >= 0 for gap in (*streams.gaps, *streams.transits, *streams.first_chunks))


async def test_an_answer_that_is_none_is_a_failure() -> None:
    async with engine() as url:
        streams = Streams(url, lambda *_: b"GET /nowhere HTTP/1.1\r\n\r\n", 3, random.Random(1))
        with closing(streams):
            await streams.open(1, 1000, staggered=False)
            async with asyncio.timeout(20):
                await streams.settled.wait()
    assert (streams.answers, streams.failures) == (0, 1)
    assert streams.failed_with.startswith(b"HTTP/1.1 404")


def measured(router: str, mode: str, size: int, **figures: object) -> Row:
    row = Measured(
        router=router,
        mode=mode,
        streams=size if mode == PACED else 16,
        chunks_each=500 if mode == PACED else size,
        chunks_per_s=1000.0,
        cpu_us_per_chunk=20.0,
        router_busy=0.5,
        load_busy=0.5,
        chunks_per_read=1.0,
        itl_p50_ms=50.0,
        itl_p99_ms=52.0,
        transit_p50_ms=0.1,
        transit_p99_ms=0.2,
        first_chunk_p50_ms=25.0,
        answers=20,
        memory_mb=90.0,
        added_itl_p99_ms=1.0 if mode == PACED else None,
    )
    return asdict(replace(row, **figures))  # type: ignore[arg-type]  # names of its fields


ROWS = [
    measured("SMG cache_aware", UNPACED, 20, chunks_per_s=2000.0),
    measured("SMG round_robin", UNPACED, 20, chunks_per_s=4000.0),
    measured("SMG round_robin", UNPACED, 500, chunks_per_s=9000.0, void=["2 answers failed"]),
    measured("prefixgate", UNPACED, 20, chunks_per_s=3000.0, load_busy=0.95),
    measured("prefixgate", UNPACED, 500, chunks_per_s=3000.0),
    measured("prefixgate", PACED, 100),
    measured("prefixgate", PACED, 500, added_itl_p99_ms=9.0),
    measured("prefixgate", PACED, 1000, added_itl_p99_ms=None, void=["disturbed"]),
    measured("prefixgate", PACED, 1500, added_itl_p99_ms=10.0),
    measured("prefixgate", PACED, 2000, added_itl_p99_ms=10.5),
]


def test_the_knee_is_the_last_level_that_holds_and_is_not_void() -> None:
    figures = Figures(ROWS)
    assert figures.knee("prefixgate") == 1500
    assert Figures(ROWS[:-2]).knee("prefixgate") == 500
    assert figures.knee("SMG cache_aware") == 0


def test_goals_are_against_the_faster_smg_and_void_rows_take_part_in_none() -> None:
    found = {goal.name: (goal.value, goal.met) for goal in goals(ROWS)}
    assert list(found.values()) == [(0.75, False), (9.0, True)]


def test_a_level_holds_while_no_more_is_added_than_may_be_or_nobody_knows() -> None:
    row = Measured(**measured("nginx", PACED, 100))  # type: ignore[arg-type]  # its own fields
    added = [(10.0, ()), (10.1, ()), (None, ()), (99.0, ["disturbed"])]
    assert [holds(replace(row, added_itl_p99_ms=ms, void=why)) for ms, why in added] == [True, False, False, True]


def test_a_level_is_void_where_the_machine_was_late_and_the_router_not_much_more() -> None:
    row = Measured(**measured("nginx", PACED, 100, itl_p99_ms=70.0, added_itl_p99_ms=None))  # type: ignore[arg-type]  # its own fields
    assert [beside(row, control_ms).added_itl_p99_ms for control_ms in (50.5, 56.0)] == [19.5, 14.0]
    assert [bool(beside(row, control_ms).void) for control_ms in (50.5, 55.1, 56.0, None)] == [False, True, True, True]
    assert not beside(replace(row, itl_p99_ms=99.0), 56.0).void


def test_the_part_has_a_line_a_router_what_was_the_limit_and_what_is_void() -> None:
    met = [{"name": goal.name, "value": goal.value, "bound": 1, "sense": ">=", "met": goal.met} for goal in goals(ROWS)]
    part = page_part({"rows": ROWS, "machine": {"cores": 2, "cpu": "X"}, "commit": "0" * 40, "goals": met})
    assert "| **prefixgate** | **3,000 \\*** | **20.0** | **3,000** | **20.0** |" in part
    assert "| SMG round_robin | 4,000 | 20.0 | - | - |" in part
    assert "- SMG round_robin, 500 chunks unpaced: 2 answers failed" in part
    assert "times SMG's: 0.75, to be >= 1: **not met**" in part
    assert with_part(f"a\n{BEGIN}\nold\n{END}\nb", part).endswith(f"{END}\nb")
    assert part_of(with_part(f"a\n{BEGIN}\nold\n{END}\nb", part)).strip() == part.strip()
    with pytest.raises(ValueError, match="no part between"):
        with_part("a page", part)


def test_the_page_and_the_picture_say_what_the_result_file_says() -> None:
    result = json.loads(FILE.read_text("utf-8")) if FILE.exists() else None
    assert part_of(PAGE.read_text("utf-8")).strip() == page_part(result).strip()
    if result is not None:
        assert IMAGE.read_text("utf-8") == plot(result["rows"])


def test_the_picture_has_a_bar_for_each_router_that_was_measured() -> None:
    drawn = ElementTree.fromstring(plot(ROWS))
    assert [text.text for text in drawn.iter("{http://www.w3.org/2000/svg}text")][1:] == [
        "prefixgate",
        "20.0 µs   + 9.0 ms p99   up to 1,500 streams",
    ]
    assert plot(ROWS[:5]) == ""


def test_a_row_is_told_as_a_line() -> None:
    assert "= 9.0 ms" in line(ROWS[6])
    assert line(ROWS[7]).endswith("VOID: disturbed")
    assert math.isnan(Figures(ROWS).of("prefixgate", PACED, 1000, "cpu_us_per_chunk"))


def test_the_page_says_how_soon_each_client_saw_the_first_token() -> None:
    page = PAGE.read_text("utf-8")
    rows = json.loads((RESULTS / "clients.json").read_text("utf-8"))["rows"]
    missing = [row for row in rows if f" | {row['gateway_p50_ms']}, {row['gateway_max_ms']} | " not in page]
    assert len(rows) == 7
    assert missing == []
