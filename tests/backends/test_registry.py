"""The registry against model servers' control pages on real ports: up, down, frozen, restarted."""

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from backends import registry as registry_module
from backends.errors import DialFailed, DialReason, UnknownEndpoint
from backends.features import Feature, Standing
from backends.registry import PollSettings, Registry
from backends.types import (
    Condition,
    EndpointConfig,
    EndpointId,
    EndpointSnapshot,
    EndpointState,
    InFlight,
)
from tests.backends.engine_page import VLLM_STARTED_AT_S, EnginePage
from tests.until import until

A, B = EndpointId("a"), EndpointId("b")
FAST = PollSettings(interval_s=0.02, deadline_s=10)


@pytest.fixture
async def engine() -> AsyncIterator[EnginePage]:
    async with EnginePage.vllm() as page:
        yield page


def registry_of(*engines: EnginePage, settings: PollSettings = FAST, api_key: str | None = None) -> Registry:
    ids = [EndpointId(name) for name in "abcdef"]
    configs = [EndpointConfig(one, page.url, api_key=api_key) for one, page in zip(ids, engines, strict=False)]
    return Registry(configs, asyncio.get_running_loop().time, settings=settings)


def of(registry: Registry, endpoint_id: EndpointId = A) -> EndpointSnapshot:
    return next(snapshot for snapshot in registry.snapshot() if snapshot.id == endpoint_id)


async def test_an_endpoint_is_down_until_it_was_seen(engine: EnginePage) -> None:
    async with registry_of(engine) as registry:
        seen = of(registry)
        assert replace(seen, condition=Condition()) == EndpointSnapshot(
            A, healthy=False, generation=0, unhealthy_reason="not seen yet"
        )
        assert (seen.condition.state, seen.condition.why) == (EndpointState.DOWN, "not seen yet")


async def test_a_gateway_that_stood_still_does_not_take_its_endpoints_for_dead(
    engine: EnginePage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_module, "STOPPED_S", 0.1)
    settings = PollSettings(deadline_s=0.5)
    async with registry_of(engine, settings=settings) as registry:
        await registry.poll(A)
        asyncio.get_running_loop().call_soon(time.sleep, 0.7)
        await registry.poll(A)
        assert of(registry).healthy
        assert of(registry).unhealthy_reason is None


async def test_at_the_start_endpoints_that_are_slow_to_answer_are_waited_for_as_long_as_a_poll_waits(
    engine: EnginePage,
) -> None:
    async with registry_of(engine) as registry:
        asyncio.get_running_loop().call_soon(time.sleep, 0.1)
        await registry.detect_all(0.05)
        assert not of(registry).healthy
        asyncio.get_running_loop().call_soon(time.sleep, 0.1)
        await registry.begin(0.05)
        assert of(registry).healthy


async def test_detection_finds_engine_models_cache_and_load(engine: EnginePage) -> None:
    async with registry_of(engine) as registry:
        await registry.detect_all(deadline_s=5)
        seen = of(registry)
        assert seen.healthy
        assert seen.unhealthy_reason is None
        assert seen.facts is not None
        assert (seen.facts.engine, seen.facts.version, seen.facts.block_size) == ("vllm", "0.32.0", 128)
        assert [model.id for model in seen.facts.models] == ["smollm2"]
        assert seen.load is not None
        assert seen.load.prefix_hits == 3584
        age_s = seen.age_s(asyncio.get_running_loop().time())
        assert age_s is not None
        assert 0 <= age_s < 60


@pytest.mark.parametrize("page", [b"[" * 100_000, b"9" * 5_000, b'{"data":[{"id":"m","owned_by":[[]]}]}'])
async def test_nonsense_in_a_page_never_ends_the_polls(engine: EnginePage, page: bytes) -> None:
    good = engine.pages["/v1/models"]
    engine.pages["/v1/models"] = (200, page)
    async with registry_of(engine) as registry:
        await registry.detect_all(deadline_s=5)
        engine.pages["/v1/models"] = good
        await registry.poll(A)
        assert of(registry).healthy


async def test_an_endpoint_that_cannot_be_read_is_down_and_says_so(
    engine: EnginePage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ArithmeticError

    monkeypatch.setattr("backends.health.facts", broken)
    async with registry_of(engine) as registry:
        await registry.detect_all(deadline_s=5)
        assert of(registry).unhealthy_reason == "what it says of itself cannot be read (ArithmeticError)"


async def test_the_endpoints_own_key_is_sent_with_every_check(engine: EnginePage) -> None:
    async with registry_of(engine, api_key="k") as registry:
        await registry.detect_all(deadline_s=5)
    assert {key for _, key in engine.seen} == {"Bearer k"}
    asked = {path for path, _ in engine.seen}
    assert {"/health", "/version", "/v1/models", "/metrics", "POST /v1/messages"} <= asked
    assert all(path.startswith("POST /v1/") for path in asked - {*engine.pages, "/kv_event_sources"})


async def test_a_base_path_stands_before_every_check() -> None:
    pages = {"/base/v1/models": (200, b'{"data":[{"id":"m"}]}')}
    async with EnginePage(pages) as engine:
        config = EndpointConfig(A, engine.url + "/base/")
        async with Registry([config], asyncio.get_running_loop().time) as registry:
            await registry.detect_all(deadline_s=5)
            facts = of(registry).facts
            assert facts is not None
            assert (facts.engine, facts.models[0].id) == ("openai", "m")


async def test_an_engine_without_metrics_is_healthy_with_an_unknown_load(engine: EnginePage) -> None:
    del engine.pages["/metrics"]
    del engine.pages["/version"]
    async with registry_of(engine) as registry:
        await registry.detect_all(deadline_s=5)
        seen = of(registry)
        assert seen.healthy
        assert seen.load is None
        assert seen.age_s(1.0) is None
        assert seen.facts is not None
        assert (seen.facts.version, seen.facts.capacity_blocks) == (None, None)


async def test_tgi_is_told_by_its_metrics_page() -> None:
    pages = {
        "/v1/models": (200, b'{"data":[{"id":"m","owned_by":"m"}]}'),
        "/metrics": (200, b"tgi_queue_size 3\n"),
        "/info": (200, b"not json"),
        "/health": (200, b""),
    }
    async with EnginePage(pages) as engine, registry_of(engine) as registry:
        await registry.detect_all(deadline_s=5)
        seen = of(registry)
        assert seen.facts is not None
        assert seen.facts.engine == "tgi"
        assert seen.load is not None
        assert seen.load.waiting == 3


@pytest.mark.parametrize(
    ("path", "answer", "reason"),
    [
        ("/health", (503, b""), "GET /health answered 503"),
        ("/v1/models", (401, b"{}"), "GET /v1/models answered 401 (backends[].api_key_file or api_key_env)"),
        ("/v1/models", (200, b"<html>"), "GET /v1/models answered no JSON"),
    ],
)
async def test_an_unhealthy_endpoint_says_why(
    engine: EnginePage, path: str, answer: tuple[int, bytes], reason: str
) -> None:
    engine.pages[path] = answer
    async with registry_of(engine) as registry:
        await registry.detect_all(deadline_s=5)
        assert (of(registry).healthy, of(registry).unhealthy_reason) == (False, reason)


async def test_a_health_path_the_engine_does_not_know_is_replaced_by_its_models(engine: EnginePage) -> None:
    del engine.pages["/health"]
    async with registry_of(engine) as registry:
        await registry.detect_all(deadline_s=5)
        assert of(registry).healthy


async def test_a_page_without_end_is_refused_and_takes_nobody_down_who_can_be_used_without(engine: EnginePage) -> None:
    endless = (200, b"x" * (9 * 1024 * 1024))
    engine.pages |= {"/metrics": endless, "/version": endless}
    async with registry_of(engine, settings=PollSettings(deadline_s=5)) as registry:
        await registry.detect_all(deadline_s=5)
        assert (of(registry).healthy, of(registry).load) == (True, None)
        engine.pages["/health"] = endless
        await registry.poll(A)
        assert "more than" in str(of(registry).unhealthy_reason)


async def test_detection_waits_for_nobody_longer_than_its_deadline(engine: EnginePage) -> None:
    async with EnginePage.vllm() as frozen:
        frozen.hangs = True
        async with registry_of(frozen, engine, settings=PollSettings(deadline_s=30)) as registry:
            started_s = asyncio.get_running_loop().time()
            await registry.detect_all(deadline_s=1.5)
            assert asyncio.get_running_loop().time() - started_s < 15
            assert of(registry, A).unhealthy_reason == "no answer within 1.5 s"
            assert of(registry, B).healthy


async def test_a_frozen_endpoint_does_not_delay_the_others(engine: EnginePage) -> None:
    async with EnginePage.vllm() as frozen:
        frozen.hangs = True
        async with (
            registry_of(frozen, engine, settings=PollSettings(interval_s=0.01, deadline_s=30)) as registry,
            asyncio.TaskGroup() as group,
        ):
            runner = group.create_task(registry.run())
            await frozen.asked.wait()
            await until(lambda: sum(path == "/health" for path, _ in engine.seen) > 3)
            assert of(registry, B).healthy
            runner.cancel()


async def test_a_frozen_endpoint_goes_down_at_the_deadline_of_a_poll(engine: EnginePage) -> None:
    async with registry_of(engine, settings=PollSettings(deadline_s=1.5)) as registry:
        await registry.poll(A)
        engine.hangs = True
        await registry.poll(A)
        assert of(registry).unhealthy_reason == "no answer within 1.5 s"
        assert of(registry).facts is not None


async def test_an_endpoint_away_at_start_is_admitted_when_it_comes() -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    engine = EnginePage.vllm()
    engine.port = port
    async with registry_of(engine) as registry, asyncio.TaskGroup() as group:
        await registry.detect_all(deadline_s=5)
        assert of(registry).unhealthy_reason == "cannot connect"
        runner = group.create_task(registry.run())
        async with engine:
            await until(lambda: of(registry).healthy)
        await until(lambda: not of(registry).healthy)
        runner.cancel()


async def test_the_generation_is_the_engines_start_time_so_that_replicas_agree(engine: EnginePage) -> None:
    heard: list[tuple[EndpointId, int]] = []
    async with registry_of(engine) as registry:
        registry.subscribe(lambda endpoint_id, generation: heard.append((endpoint_id, generation)))
        for _ in range(3):
            await registry.poll(A)
        assert of(registry).generation == VLLM_STARTED_AT_S
        assert heard == [(A, VLLM_STARTED_AT_S)]


async def test_a_restart_seen_by_its_start_time_raises_the_generation_once(engine: EnginePage) -> None:
    heard: list[int] = []
    async with registry_of(engine) as registry:
        await registry.poll(A)
        registry.subscribe(lambda _, generation: heard.append(generation))
        engine.edit_metrics("process_start_time_seconds 1.79596121854e+09", "process_start_time_seconds 1.7959700e+09")
        engine.edit_metrics('block_size="128"', 'block_size="16"')
        await registry.poll(A)
        await registry.poll(A)
        assert heard == [1795970000]
        facts = of(registry).facts
        assert facts is not None
        assert facts.block_size == 16


async def test_a_restart_seen_by_counters_going_back_raises_the_generation(engine: EnginePage) -> None:
    engine.edit_metrics("process_start_time_seconds 1.79596121854e+09\n", "")
    engine.edit_metrics("\nvllm:prefix_cache_queries_created{", "\nother_created{")
    async with registry_of(engine) as registry:
        await registry.poll(A)
        assert of(registry).generation == 0
        engine.edit_metrics('model_name="smollm2"} 6681.0', 'model_name="smollm2"} 12.0')
        await registry.poll(A)
        assert of(registry).generation == 1


async def test_health_flap_keeps_load_a_flap_of_one_process_keeps_generation_and_work_in_flight(
    engine: EnginePage,
) -> None:
    async with registry_of(engine) as registry:
        await registry.poll(A)
        before = of(registry).generation
        reservation = registry.reserve(A, uncached_tokens=1000, decode_tokens=50)
        await engine.stop()
        await registry.poll(A)
        assert not of(registry).healthy
        assert registry.load_of(A) == InFlight(1, 1000, 50)
        await engine.start()
        await registry.poll(A)
        assert of(registry).healthy
        assert of(registry).generation == before
        assert registry.load_of(A) == InFlight(1, 1000, 50)
        reservation.release()
        assert registry.load_of(A) == InFlight()


async def test_an_engine_that_tells_nothing_of_itself_is_taken_for_restarted_after_it_was_down(
    engine: EnginePage,
) -> None:
    del engine.pages["/metrics"]
    async with registry_of(engine) as registry:
        await registry.poll(A)
        engine.pages["/health"] = (500, b"")
        await registry.poll(A)
        engine.pages["/health"] = (200, b"")
        await registry.poll(A)
        assert of(registry).generation == 1


async def test_new_adapters_are_seen_while_the_endpoint_stays_up(engine: EnginePage) -> None:
    async with registry_of(engine, settings=PollSettings(polls_to_detect=2)) as registry:
        await registry.poll(A)
        models = json.loads(engine.pages["/v1/models"][1])
        models["data"].append({"id": "lora", "parent": "smollm2"})
        engine.pages["/v1/models"] = (200, json.dumps(models).encode())
        await registry.poll(A)
        await registry.poll(A)
        facts = of(registry).facts
        assert facts is not None
        assert [model.id for model in facts.models] == ["smollm2", "lora"]


async def test_any_answer_ends_the_count_of_failures_and_a_full_pool_is_none(engine: EnginePage) -> None:
    async with registry_of(engine) as registry:
        await registry.poll(A)
        for _ in range(10):
            registry.report_failure(A, DialFailed(A, DialReason.REFUSED))
            registry.report_success(A)
            registry.report_failure(A, DialFailed(A, DialReason.POOL))
        assert of(registry).healthy


async def test_cached_tokens_seen_in_one_answer_settle_that_the_endpoint_reports_them(engine: EnginePage) -> None:
    async with registry_of(engine, settings=PollSettings(polls_to_detect=1)) as registry:
        await registry.poll(A)

        def reported() -> bool | None:
            facts = of(registry).facts
            assert facts is not None
            standing = facts.features[Feature.CACHED_TOKENS].standing
            assert (standing is Standing.ON) == (facts.reports_cached_tokens is True)
            return facts.reports_cached_tokens

        registry.report_success(A)
        assert reported() is None
        registry.report_success(A, reports_cached_tokens=True)
        assert reported() is True
        await registry.poll(A)
        assert reported() is True


async def test_draining_shows_in_the_snapshot_and_can_be_taken_back(engine: EnginePage) -> None:
    async with registry_of(engine) as registry:
        registry.drain(A)
        assert of(registry).draining
        registry.drain(A, draining=False)
        assert not of(registry).draining


async def test_snapshots_are_kept_until_something_changes(engine: EnginePage) -> None:
    async with EnginePage.vllm() as other, registry_of(engine, other) as registry:
        first = registry.snapshot()
        assert registry.snapshot() is first
        registry.reserve(B, 1, 1)  # work in flight changes with each request: it is asked for by itself
        assert registry.snapshot() is first
        registry.drain(B)
        second = registry.snapshot()
        assert second[0] is first[0]
        assert (first[1].draining, second[1].draining) == (False, True)


async def test_an_unknown_id_is_an_error_that_names_it(engine: EnginePage) -> None:
    async with registry_of(engine) as registry:
        assert registry.config_of(A).url == engine.url
        with pytest.raises(UnknownEndpoint, match="nobody"):
            registry.reserve(EndpointId("nobody"), 1, 1)


async def test_two_endpoints_of_one_id_are_refused() -> None:
    config = EndpointConfig(A, "http://127.0.0.1:1")
    with pytest.raises(ValueError, match="unique"):
        Registry([config, config], asyncio.get_running_loop().time)
