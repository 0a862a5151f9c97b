"""Policies on real engines: what a load is made of, and what its runs come to."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from backends.reference.model_files import ensure_model
from bench.live_client import Driven, LiveClient, Served
from bench.live_load import LiveRequest, Shape, Writer
from bench.live_report import CLOSED, CONTROL, OPEN, POLICIES, LiveRun, goals_of, hit_share, ratios_of, rows_of
from gateway.demo import DemoFailed
from prefix_index.prompt import load_model_text

SHARED = Shape(requests=30, groups=3, prefix_tokens=200, own_tokens=(20, 40), output_tokens=4)
ALONE = Shape(requests=12, groups=0, prefix_tokens=0, own_tokens=(20, 200), output_tokens=4)


@pytest.fixture(scope="module")
def writer() -> Writer:
    return Writer(load_model_text(ensure_model("tiny")), "tiny")


def messages_of(request: LiveRequest) -> list[dict[str, str]]:
    found: list[dict[str, str]] = json.loads(request.body)["messages"]
    return found


def test_a_group_shares_its_prefix_and_nothing_else_is_said_twice(writer: Writer) -> None:
    load = [messages_of(request) for request in writer.load("shared", SHARED, 0)]
    assert len({prompt[0]["content"] for prompt in load}) == SHARED.groups
    assert len({prompt[1]["content"] for prompt in load}) == SHARED.requests
    alone = [messages_of(request) for request in writer.load("control", ALONE, 0)]
    assert len({prompt[0]["content"] for prompt in alone}) == ALONE.requests


def test_prompts_are_about_as_long_as_was_asked_for(writer: Writer) -> None:
    for request in writer.load("shared", SHARED, 0):
        system, own = messages_of(request)
        assert writer.count([system]) == pytest.approx(SHARED.prefix_tokens, rel=0.15, abs=10)
        assert 10 <= writer.count([own]) <= 60


def test_a_load_is_the_same_again_and_another_with_another_name_or_seed(writer: Writer) -> None:
    load = writer.load("shared", SHARED, 0)
    assert writer.load("shared", SHARED, 0) == load
    others = writer.load("shared", SHARED, 1), writer.load("other", SHARED, 0)
    prefixes = {messages_of(request)[0]["content"] for request in load}
    assert all(messages_of(request)[0]["content"] not in prefixes for other in others for request in other)


def run(load: str, policy: str, round_: int, *, ttft_s: float, wall_s: float) -> LiveRun:
    served = [Served("engine-0", ttft_s * (at + 1) / 10, 100, 75, 8) for at in range(10)]
    return LiveRun(load, policy, round_, Driven(served, wall_s))


def all_runs(ours_s: float) -> list[LiveRun]:
    """The others take a second, and ten in all; the machine is twice as slow in the second round."""
    return [
        run(load, policy, number, ttft_s=slow * by, wall_s=10 * slow * by)
        for load in (OPEN, CLOSED, CONTROL)
        for number, slow in enumerate((1.0, 2.0, 1.0))
        for policy in POLICIES
        for by in [ours_s if policy == "prefix" else 1.0]
    ]


def test_ratios_are_of_one_round_so_that_a_slow_one_counts_for_nothing() -> None:
    rows = ratios_of(all_runs(0.5))
    assert len(rows) == 3 * 2 * 2, "loads, other policies, figures"
    for row in rows:
        wanted = 2.0 if str(row["ratio"]).startswith("requests/s") else 0.5
        assert (row["least"], row["median"], row["most"]) == pytest.approx((wanted, wanted, wanted))


def test_a_row_pools_all_rounds_and_tells_how_far_they_are_apart() -> None:
    [row] = [row for row in rows_of(all_runs(0.5)) if (row["load"], row["policy"]) == (CONTROL, "round_robin")]
    assert (row["requests"], row["hit_share"], row["computed_tokens"]) == (30, 0.75, 750)
    assert (row["requests_per_s"], row["output_tokens_per_s"]) == (1.0, 8.0)
    assert (row["noise_ttft_p90"], row["noise_requests_per_s"]) == (1.0, 0.5)
    assert row["requests_by_endpoint"] == {"engine-0": 30}
    assert row["computed_tokens_by_endpoint"] == {"engine-0": 750}


def test_ours_must_win_where_prefixes_are_shared_and_may_lose_a_twentieth_where_they_are_not() -> None:
    assert all(goal.met for goal in goals_of(all_runs(0.9)))
    lost = [goal.name for goal in goals_of(all_runs(1.04)) if not goal.met]
    assert lost
    assert not any(name.startswith(CONTROL) for name in lost)
    assert not any(goal.met for goal in goals_of(all_runs(1.1)))


def test_nothing_was_cached_of_nothing() -> None:
    assert hit_share([]) == 0


TEXT = b'data: {"choices": [{"delta": {"content": "a"}}]}\n\n'
USAGE = b"""data: {"choices": [], "usage": {"prompt_tokens": 40, "completion_tokens": 2,
"prompt_tokens_details": {"cached_tokens": 32}}}\n\n""".replace(b",\n", b",")
DONE = b"data: [DONE]\n\n"
REQUESTS = [LiveRequest(f"r{number}", b"{}", 0.01) for number in range(6)]


@asynccontextmanager
async def gateway(*events: bytes, status: int = 200) -> AsyncIterator[LiveClient]:
    """A client of a gateway that answers everything with these events."""

    async def answer(_: web.Request) -> web.Response:
        headers = {"x-prefixgate-endpoint": "engine-0", "content-type": "text/event-stream"}
        return web.Response(status=status, body=b"".join(events), headers=headers)

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    async with TestServer(app) as server:
        yield LiveClient(str(server.make_url("/")), "key")


@pytest.mark.parametrize("rate_per_s", [None, 1000.0])
async def test_each_request_of_a_load_is_answered_once_and_its_usage_is_read(rate_per_s: float | None) -> None:
    async with gateway(TEXT, TEXT, USAGE, DONE) as client:
        driven = await (client.closed(REQUESTS, 2) if rate_per_s is None else client.open(REQUESTS, rate_per_s))
    assert len(driven.served) == len(REQUESTS)
    assert {(one.prompt_tokens, one.cached_tokens, one.output_tokens) for one in driven.served} == {(40, 32, 2)}
    assert all(0 < one.ttft_s <= driven.wall_s for one in driven.served)


@pytest.mark.parametrize(
    ("events", "status"),
    [
        ((TEXT, USAGE), 200),
        ((TEXT, DONE), 200),
        ((USAGE, DONE), 200),
        ((b'data: {"error": {"code": "gone"}}\n\n',), 200),
        ((), 503),
    ],
)
async def test_a_load_with_an_answer_that_is_not_whole_is_no_measurement(
    events: tuple[bytes, ...], status: int
) -> None:
    async with gateway(*events, status=status) as client:
        with pytest.raises(DemoFailed):
            await client.closed(REQUESTS, 2)
        with pytest.raises(DemoFailed):
            await client.open(REQUESTS, 1000.0)
