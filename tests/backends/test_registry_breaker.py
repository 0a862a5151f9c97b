"""The registry and what calls find wrong: a breaker for each endpoint, which no poll and no flap makes forgotten."""

import asyncio
import math
from collections.abc import AsyncIterator

import pytest

from backends.breaker import BreakerRules
from backends.errors import DialFailed, DialReason, FirstByteTimeout, UpstreamError, UpstreamReset
from backends.registry import PollSettings
from backends.types import EndpointState
from tests.backends.engine_page import EnginePage
from tests.backends.test_registry import A, of, registry_of


@pytest.fixture
async def engine() -> AsyncIterator[EnginePage]:
    async with EnginePage.vllm() as page:
        yield page


QUICK = PollSettings(deadline_s=10, breaker=BreakerRules(open_s=0.001))


async def test_failed_calls_in_a_row_open_the_breaker_and_a_poll_that_succeeds_does_not_shut_it(
    engine: EnginePage,
) -> None:
    async with registry_of(engine) as registry:
        await registry.poll(A)
        registry.report_failure(A, DialFailed(A, DialReason.REFUSED))
        registry.report_failure(A, FirstByteTimeout(A, 5.0))
        assert of(registry).healthy
        registry.report_failure(A, FirstByteTimeout(A, 5.0))
        for _ in range(2):
            seen = of(registry)
            assert (seen.healthy, seen.unhealthy_reason) == (False, "no first byte, 3 times in a row")
            assert seen.condition.state is EndpointState.OPEN
            await registry.poll(A)
            await registry.poll(A)


async def test_once_its_time_is_over_the_next_poll_half_opens_it_and_an_answer_shuts_it(engine: EnginePage) -> None:
    async with registry_of(engine, settings=QUICK) as registry:
        await registry.poll(A)
        for _ in range(3):
            registry.report_failure(A, FirstByteTimeout(A, 5.0))
        assert not of(registry).healthy
        await registry.poll(A)
        seen = of(registry)
        assert (seen.healthy, seen.condition.state, seen.condition.opened) == (True, EndpointState.HALF_OPEN, 1)
        assert registry.restrained[A].breaker.has_place
        gives_back = registry.probe(A)
        assert gives_back is not None
        assert not registry.restrained[A].breaker.has_place
        registry.report_first_byte(A)
        gives_back()
        assert not registry.restrained
        assert registry.probe(A) is None
        assert of(registry).condition.state is EndpointState.UP


async def test_where_nobody_was_there_a_poll_that_succeeds_lets_probes_through_at_once(engine: EnginePage) -> None:
    async with registry_of(engine) as registry:
        await registry.poll(A)
        generation = of(registry).generation
        for _ in range(3):
            registry.report_failure(A, DialFailed(A, DialReason.REFUSED))
        assert not of(registry).healthy
        await registry.poll(A)
        assert of(registry).condition.state is EndpointState.HALF_OPEN
        assert of(registry).generation == generation  # it is the process that it was, as its page says


async def test_an_engine_that_tells_nothing_and_was_not_there_for_calls_is_taken_for_restarted(
    engine: EnginePage,
) -> None:
    del engine.pages["/metrics"]
    async with registry_of(engine) as registry:
        await registry.poll(A)
        for _ in range(3):
            registry.report_failure(A, DialFailed(A, DialReason.REFUSED))
        await registry.poll(A)
        assert (of(registry).generation, of(registry).condition.state) == (1, EndpointState.UP)


async def test_a_flap_of_one_process_keeps_what_calls_have_found_wrong_and_a_restart_does_not(
    engine: EnginePage,
) -> None:
    async with registry_of(engine) as registry:
        await registry.poll(A)
        for _ in range(3):
            registry.report_failure(A, FirstByteTimeout(A, 5.0))
        await engine.stop()
        await registry.poll(A)
        assert of(registry).condition.state is EndpointState.DOWN
        await engine.start()
        await registry.poll(A)
        assert (of(registry).condition.state, of(registry).condition.opened) == (EndpointState.OPEN, 1)
        engine.edit_metrics("process_start_time_seconds 1.79596121854e+09", "process_start_time_seconds 1.7959700e+09")
        await registry.poll(A)
        assert (of(registry).condition.state, of(registry).condition.opened) == (EndpointState.UP, 1)


async def test_a_poll_that_is_late_takes_nobody_down_who_answers_calls(engine: EnginePage) -> None:
    """A server that is busy with a long prompt answers its health check late, and is at work all the same."""
    async with registry_of(engine, settings=PollSettings(deadline_s=0.5)) as registry, asyncio.TaskGroup() as group:
        await registry.detect_all(deadline_s=10)
        engine.hangs = True
        engine.asked.clear()
        poll = group.create_task(registry.poll(A))
        await engine.asked.wait()
        registry.report_first_byte(A)
        await poll
        assert of(registry).healthy
        await registry.poll(A)
        assert of(registry).unhealthy_reason == "no answer within 0.5 s"


async def test_an_engine_too_busy_for_polls_is_up_as_long_as_it_gives_tokens(engine: EnginePage) -> None:
    """Its backlog is full of new connections, and those that it has are served."""
    async with registry_of(engine, settings=PollSettings(deadline_s=0.2)) as registry:
        await registry.detect_all(deadline_s=10)
        engine.hangs = True
        registry.last_token_s = lambda _: 0.0
        await registry.poll(A)
        assert of(registry).unhealthy_reason == "no answer within 0.2 s"
        registry.last_token_s = lambda _: math.inf
        await registry.poll(A)
        assert (of(registry).condition.state, of(registry).generation) == (EndpointState.UP, 1795961218)


@pytest.mark.parametrize(
    ("failure", "is_one"),
    [
        (DialFailed(A, DialReason.TIMEOUT), True),
        (UpstreamReset(A, 40), True),
        (DialFailed(A, DialReason.REFUSED), False),
        (FirstByteTimeout(A, 5.0), False),
    ],
)
async def test_who_fails_calls_and_answers_polls_is_a_last_resort_unless_nobody_is_there_or_all_is_silence(
    failure: UpstreamError, is_one: bool, engine: EnginePage
) -> None:
    async with registry_of(engine) as registry:
        await registry.poll(A)
        assert not of(registry).last_resort
        for _ in range(3):
            registry.report_failure(A, failure)
        assert (of(registry).condition.state, of(registry).last_resort) == (EndpointState.OPEN, is_one)
        engine.pages["/health"] = (503, b"")
        await registry.poll(A)
        assert not of(registry).last_resort


async def test_who_is_set_aside_is_up_and_restrained_until_taken_back(engine: EnginePage) -> None:
    async with registry_of(engine) as registry:
        await registry.poll(A)
        registry.set_aside(A, EndpointState.STALLED, "nothing moves")
        seen = of(registry)
        assert (seen.healthy, seen.condition.state, seen.condition.why) == (
            True,
            EndpointState.STALLED,
            "nothing moves",
        )
        assert list(registry.restrained) == [A]
        await registry.poll(A)
        assert list(registry.restrained) == [A]
        assert registry.take_back(A, EndpointState.STALLED, "was stalled")
        assert not registry.take_back(A, EndpointState.STALLED)
        assert (of(registry).condition.state, of(registry).condition.why) == (EndpointState.HALF_OPEN, "was stalled")
        await registry.purge(A)
        assert not registry.restrained


async def test_one_where_calls_find_nobody_though_polls_do_is_not_tried_at_every_poll(engine: EnginePage) -> None:
    async with registry_of(engine) as registry:
        await registry.poll(A)
        for _ in range(3):
            registry.report_failure(A, DialFailed(A, DialReason.REFUSED))
        await registry.poll(A)
        registry.report_failure(A, DialFailed(A, DialReason.REFUSED))
        await registry.poll(A)
        assert (of(registry).condition.state, of(registry).condition.opened) == (EndpointState.OPEN, 2)
