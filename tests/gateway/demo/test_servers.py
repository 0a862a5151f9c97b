"""What the demo asks its engines and gateways, and what it does when they answer badly."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml
from aiohttp import web

from gateway.config import load_config
from gateway.demo import engines as demo_engines
from gateway.demo import gateway_process
from gateway.demo.engines import Engine, read_counters, reset_caches
from gateway.demo.gateway_process import MODELS
from gateway.demo.types import DemoFailed, EngineCounters, Policy
from gateway.edge.auth import load_keys

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

PAGE = """
vllm:prefix_cache_queries_total{{engine="0"}} {prompt}
vllm:prefix_cache_hits_total{{engine="0"}} {cached}
vllm:request_prefill_time_seconds_sum{{engine="0"}} 1.5
vllm:request_prefill_time_seconds_count{{engine="0"}} 3
"""


@asynccontextmanager
async def serving(path: str, handler: Handler) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_route("*", path, handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_counters_are_summed_over_the_engines() -> None:
    async def metrics(request: web.Request) -> web.StreamResponse:
        return web.Response(text=PAGE.format(prompt=100, cached=64))

    async with serving("/metrics", metrics) as url:
        total = await read_counters([Engine("engine-0", url), Engine("engine-1", url)])
    assert total == EngineCounters(prompt_tokens=200, cached_tokens=128, prefill_s=3.0)
    assert (total - EngineCounters(100, 64, 1.0)).computed_tokens == 36


async def test_an_engine_without_the_counters_is_named() -> None:
    async def metrics(request: web.Request) -> web.StreamResponse:
        return web.Response(text="vllm:prefix_cache_queries_total 1\n")

    async with serving("/metrics", metrics) as url:
        with pytest.raises(DemoFailed, match="metrics of engine-0 do not have"):
            await read_counters([Engine("engine-0", url)])


async def test_every_cache_is_emptied() -> None:
    asked: list[str] = []

    async def reset(request: web.Request) -> web.StreamResponse:
        asked.append(request.method)
        return web.json_response({"success": True})

    async with serving("/reset_prefix_cache", reset) as url:
        await reset_caches([Engine("engine-0", url), Engine("engine-1", url)])
    assert asked == ["POST", "POST"]


async def test_a_gateway_may_become_well_a_little_later() -> None:
    states = iter([{"index": "timeout"}, {}])

    async def health(request: web.Request) -> web.StreamResponse:
        return web.json_response({"degraded": next(states)})

    async with serving("/health", health) as url:
        await gateway_process._see_that_it_is_well(url)
    assert list(states) == []


async def test_a_gateway_that_stays_degraded_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_process, "WELL_WITHIN_S", 0.3)

    async def health(request: web.Request) -> web.StreamResponse:
        return web.json_response({"degraded": {"index": "no server"}})

    async with serving("/health", health) as url:
        with pytest.raises(DemoFailed, match="no server"):
            await gateway_process._see_that_it_is_well(url)


async def test_an_engine_that_refuses_the_warm_up_is_quoted() -> None:
    async def completions(request: web.Request) -> web.StreamResponse:
        return web.json_response({"error": {"message": "no such model"}}, status=404)

    async with serving("/v1/completions", completions) as url:
        with pytest.raises(DemoFailed, match="engine-0 answered 404"):
            await demo_engines._warm_up([Engine("engine-0", url)], "tiny")


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("policy", Policy)
def test_the_files_made_for_a_gateway_are_ones_it_takes(tmp_path: Path, model: str, policy: Policy) -> None:
    home = tmp_path / "home"
    engines = [Engine("engine-0", "http://127.0.0.1:1"), Engine("engine-1", "http://127.0.0.1:2")]
    digests = {"acme": "a" * 64, "birch": "b" * 64, "cedar": "c" * 64}
    gateway_process._write_files(
        home,
        {
            "keys.yaml": gateway_process._keys_file(digests),
            "gateway.yaml": gateway_process._config(policy, engines, model, tmp_path, home),
        },
    )
    config = load_config(home / "gateway.yaml", {}, {})
    assert config.scheduling.policy == policy.value
    assert config.scheduling.prefill_tokens_per_s < 8000
    assert [backend.name for backend in config.backends] == ["engine-0", "engine-1"]
    assert config.keys_file is not None
    assert load_keys(config.keys_file, b"secret").share_groups == {"partners", "cedar"}
    assert yaml.safe_load((home / "gateway.yaml").read_text())["models"] == {model: {"tokenizer": str(tmp_path)}}
