"""Endpoints that join, leave, come back and move while the registry runs, on real ports."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from backends.errors import FirstByteTimeout, UnknownEndpoint
from backends.registry import PollSettings, Registry
from backends.types import EndpointConfig, EndpointId
from tests.backends.engine_page import VLLM_STARTED_AT_S, EnginePage
from tests.backends.test_registry import A, B, of
from tests.until import until

FAST = PollSettings(interval_s=0.02, deadline_s=10)


@pytest.fixture
async def engine() -> AsyncIterator[EnginePage]:
    async with EnginePage.vllm() as page:
        yield page


@asynccontextmanager
async def running(*configs: EndpointConfig) -> AsyncIterator[Registry]:
    registry = Registry(configs, asyncio.get_running_loop().time, settings=FAST)
    async with registry, asyncio.TaskGroup() as group:
        polls = group.create_task(registry.run())
        yield registry
        polls.cancel()


async def test_one_that_joins_is_down_until_it_was_asked(engine: EnginePage) -> None:
    async with running() as registry:
        assert registry.snapshot() == ()
        registry.join(EndpointConfig(A, engine.url))
        assert (of(registry).healthy, of(registry).unhealthy_reason) == (False, "not seen yet")
        await until(lambda: of(registry).healthy)
        assert of(registry).generation == VLLM_STARTED_AT_S


async def test_an_id_is_given_once(engine: EnginePage) -> None:
    async with running(EndpointConfig(A, engine.url)) as registry:
        with pytest.raises(ValueError, match="already"):
            registry.join(EndpointConfig(A, "http://10.0.0.1:1"))


async def test_one_that_leaves_takes_no_requests_and_is_asked_nothing_but_stays_known(engine: EnginePage) -> None:
    async with running(EndpointConfig(A, engine.url)) as registry:
        await until(lambda: of(registry).healthy)
        with registry.reserve(A, 100, 10):
            registry.leave(A)
            assert of(registry).draining
            assert registry.load_of(A).requests == 1
            await asyncio.sleep(0)  # the poll under way is cancelled
            asked = len(engine.seen)
            await engine.stop()
            await engine.start()
            assert len(engine.seen) == asked
            assert A in registry


async def test_one_that_comes_back_unchanged_keeps_its_generation_and_takes_requests_once_asked(
    engine: EnginePage,
) -> None:
    raised: list[tuple[str, int]] = []
    async with running(EndpointConfig(A, engine.url)) as registry:
        registry.subscribe(lambda endpoint_id, generation: raised.append((endpoint_id, generation)))
        await until(lambda: of(registry).healthy)
        registry.leave(A)
        registry.come_back(A)
        assert (of(registry).healthy, of(registry).unhealthy_reason) == (False, "not seen since it came back")
        await until(lambda: of(registry).healthy)
        assert not of(registry).draining
        assert raised == [(A, VLLM_STARTED_AT_S)]


async def test_one_that_comes_back_restarted_is_of_another_generation(engine: EnginePage) -> None:
    async with running(EndpointConfig(A, engine.url)) as registry:
        await until(lambda: of(registry).healthy)
        registry.leave(A)
        engine.edit_metrics("1.795961218", "1.795961300")
        registry.come_back(A)
        await until(lambda: of(registry).healthy)
        assert of(registry).generation > VLLM_STARTED_AT_S


async def test_one_at_another_address_is_another_one_and_what_was_sent_goes_on(engine: EnginePage) -> None:
    raised: list[int] = []
    async with EnginePage.vllm() as other, running(EndpointConfig(A, engine.url)) as registry:
        await until(lambda: of(registry).healthy)
        under_way = registry.reserve(A, 100, 10)
        registry.subscribe(lambda _, generation: raised.append(generation))
        before = await registry.move(EndpointConfig(A, other.url))
        assert before.url == engine.url
        assert not of(registry).healthy
        assert of(registry).facts is None
        assert registry.load_of(A).requests == 0
        await until(lambda: of(registry).healthy)
        assert raised == [0, VLLM_STARTED_AT_S]
        under_way.release()
        assert registry.load_of(A).requests == 0


async def test_another_key_for_the_same_address_changes_nothing_that_is_known(engine: EnginePage) -> None:
    async with running(EndpointConfig(A, engine.url)) as registry:
        await until(lambda: of(registry).healthy)
        with registry.reserve(A, 100, 10):
            await registry.move(EndpointConfig(A, engine.url, api_key="k"))
            assert of(registry).healthy
            assert registry.load_of(A).requests == 1
        assert registry.load_of(A).requests == 0
        await until(lambda: ("/health", "Bearer k") in engine.seen)
        assert of(registry).generation == VLLM_STARTED_AT_S


async def test_one_that_is_purged_is_unknown_and_late_word_of_it_is_ignored(engine: EnginePage) -> None:
    async with running(EndpointConfig(A, engine.url), EndpointConfig(B, engine.url)) as registry:
        await until(lambda: of(registry).healthy)
        assert (await registry.purge(A)).url == engine.url
        assert [one.id for one in registry.snapshot()] == [B]
        with pytest.raises(UnknownEndpoint):
            registry.config_of(A)
        registry.report_success(A)
        registry.report_failure(A, FirstByteTimeout(A, 1.0))


async def test_one_that_is_purged_while_it_is_asked_raises_no_generation(engine: EnginePage) -> None:
    raised: list[EndpointId] = []
    async with Registry([EndpointConfig(A, engine.url)], asyncio.get_running_loop().time) as registry:
        registry.subscribe(lambda endpoint_id, _: raised.append(endpoint_id))
        engine.hangs_at.add("/metrics")
        async with asyncio.TaskGroup() as group:
            asking = group.create_task(registry.poll(A))
            await engine.asked.wait()
            await registry.purge(A)
            asking.cancel()
        assert raised == []


async def test_what_is_held_back_and_what_is_drained_are_two_words(engine: EnginePage) -> None:
    async with running(EndpointConfig(A, engine.url)) as registry:
        registry.drain(A)
        registry.hold_back(A, True)
        registry.hold_back(A, False)
        assert of(registry).draining
        registry.drain(A, False)
        assert not of(registry).draining
