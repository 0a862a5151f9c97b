"""Where the time of a request goes: the steps make up the whole, in a metric and, for who asks, in the answer."""

import asyncio
import re
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from gateway.timing import STEPS, Marks, Step, StepTimes, TimingHeader
from tests.gateway.conftest import RunningGateway, StartGateway, start
from tests.gateway.scripted_engine import answer_chat, answer_json, chat_stream, scripted_engine
from tests.hostile import Behaviour, stream

ASKED = ((b"accept", b"*/*"), (b"x-prefixgate-timing", b"1"))
CHAT = {"model": "m", "messages": [{"role": "user", "content": "Where are the books on gravity?"}]}
GAPS = st.lists(st.floats(1e-6, 1e3) | st.none(), min_size=len(STEPS), max_size=len(STEPS))


def marks_of(began_s: float, gaps: list[float | None]) -> Marks:
    """Marks with so much time between them, and none where there is to be none."""
    moments = []
    for gap in gaps:
        began_s += gap or 0.0
        moments.append(0.0 if gap is None else began_s)
    return Marks(*moments)


@given(GAPS)
def test_the_steps_that_there_were_make_up_the_whole(gaps: list[float | None]) -> None:
    began_s = 1000.0
    registry, marks = CollectorRegistry(), marks_of(began_s, gaps)
    StepTimes(registry).note(began_s, marks)
    expected = [(step, gap) for step, gap in zip(STEPS, gaps, strict=True) if gap is not None]
    assert [step for step, _, _ in marks.steps(began_s)] == [step for step, _ in expected]
    for step, gap in expected:
        told = registry.get_sample_value("prefixgate_step_seconds_sum", {"step": step.value})
        assert told == pytest.approx(gap, abs=1e-9)
    counts = [registry.get_sample_value("prefixgate_step_seconds_count", {"step": step.value}) for step in STEPS]
    assert counts == [0.0 if gap is None else 1.0 for gap in gaps]


def test_an_attempt_that_failed_leaves_no_moments_of_its_own() -> None:
    marks = Marks(planned_s=1.0, matched_s=2.0, sent_s=2.1, connected_s=2.2, answered_s=2.3)
    marks.attempt_failed(3.0)
    marks.sent_s = 3.5
    steps = {step: round(end_s - start_s, 3) for step, start_s, end_s in marks.steps(0.0)}
    assert steps == {Step.CHAIN: 1.0, Step.MATCH: 1.0, Step.RETRIES: 1.0, Step.DECIDE: 0.5}


@pytest.mark.parametrize(
    ("when", "asked", "told"),
    [("asked", True, True), ("asked", False, False), ("always", False, True), ("never", True, False)],
)
def test_times_are_told_as_the_configuration_says(when: str, asked: bool, told: bool) -> None:
    value = TimingHeader(when, coarse=False).value(ASKED if asked else (), 1.0, Marks(received_s=1.0005))
    assert value == (b"body;dur=0.500" if told else None)


def test_what_somebody_elses_prompt_makes_quicker_is_told_coarsely_among_strangers() -> None:
    marks = Marks(received_s=1.0, rendered_s=1.0004, tokens_s=1.0174, matched_s=1.0179, answered_s=1.1)
    exact = TimingHeader("always", coarse=False).value((), 1.0, marks)
    coarse = TimingHeader("always", coarse=True).value((), 1.0, marks)
    assert exact == b"body;dur=0.000, render;dur=0.400, tokens;dur=17.000, match;dur=0.500, first_byte;dur=82.100"
    assert coarse == b"body;dur=0.000, render;dur=0, tokens;dur=20, match;dur=0.500, first_byte;dur=80"


async def steps_told(gateway: RunningGateway, requests: int) -> dict[str, int]:
    """How often each step was told, once so many requests are over."""
    async with asyncio.timeout(10):
        while True:
            page = (await asyncio.to_thread(gateway.http.get, "/metrics")).text
            found = re.findall(r'^prefixgate_step_seconds_count\{step="(\w+)"\} (\d+)', page, flags=re.MULTILINE)
            counts = {step: int(count) for step, count in found if int(count)}
            if counts.get("edge", 0) >= requests:
                return counts
            await asyncio.sleep(0.01)


ASKED_FOR = ["body", "edge", "tokens", "chain", "match", "decide", "connect", "first_byte", "open"]


@pytest.mark.parametrize("script", [answer_chat("Hi"), stream(*chat_stream("Hi"))])
async def test_an_answer_tells_its_steps_where_the_request_asks(
    script: Behaviour, start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async with scripted_engine(script) as engine:
        gateway = await start(start_gateway, engine.url)
        asking = {"x-prefixgate-timing": "1"}
        answer = await client.post(f"{gateway.url}/v1/chat/completions", json=CHAT, headers=asking)
        told = re.findall(r"(\w+);dur=(\d+\.\d{3})(?:, |$)", answer.headers["x-prefixgate-timing"])
        counts = await steps_told(gateway, 1)
    assert [step for step, _ in told] == ASKED_FOR
    assert counts == dict.fromkeys([*ASKED_FOR, "answer", "settle"], 1)
    assert b"x-prefixgate-timing" not in engine.requests[0]


async def test_an_answer_tells_no_steps_unasked(start_gateway: StartGateway, client: httpx.AsyncClient) -> None:
    async with scripted_engine(answer_chat("Hi")) as engine:
        gateway = await start(start_gateway, engine.url)
        answer = await client.post(f"{gateway.url}/v1/chat/completions", json=CHAT)
    assert answer.status_code == 200
    assert "x-prefixgate-timing" not in answer.headers


async def test_strangers_to_each_other_are_told_coarsely(
    start_gateway: StartGateway, client: httpx.AsyncClient, tmp_path: Path
) -> None:
    keys = tmp_path / "keys.yaml"
    digest = "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"  # of "foo"
    keys.write_text(f"tenants: [{{id: acme, keys: [{{id: acme-1, sha256: {digest}}}]}}]")
    async with scripted_engine(answer_chat("Hi")) as engine:
        gateway = await start(start_gateway, engine.url, keys_file=keys)
        headers = {"x-prefixgate-timing": "1", "authorization": "Bearer foo"}
        answer = await client.post(f"{gateway.url}/v1/chat/completions", json=CHAT, headers=headers)
    assert re.search(r"tokens;dur=\d*0, chain;dur=\d*0, match;dur=\d+\.\d{3}", answer.headers["x-prefixgate-timing"])


async def test_an_attempt_that_failed_is_a_step(start_gateway: StartGateway, client: httpx.AsyncClient) -> None:
    async with scripted_engine(answer_json({}, status=503), answer_chat("Hi")) as engine:
        gateway = await start(start_gateway, engine.url, f"{engine.url}/", scheduling__policy="round_robin")
        answer = await client.post(f"{gateway.url}/v1/chat/completions", json=CHAT)
        assert answer.status_code == 200
        counts = await steps_told(gateway, 1)
    assert counts == dict.fromkeys([*ASKED_FOR, "retries", "answer", "settle"], 1)
