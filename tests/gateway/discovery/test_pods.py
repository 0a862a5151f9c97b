"""Pods found at a (simulated) Kubernetes API server, behind a gateway with real engines."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from backends.reference.embedded import RunningEngine, run_engine
from backends.reference.types import EngineConfig
from gateway.config import ConfigInvalid, load_config
from gateway.discovery_setup import sources_of
from tests.backends.discovery.api_server import NAMESPACE, ApiServer, Object, api_server, endpoint
from tests.gateway.conftest import MODEL, STORY, RunningGateway, StartGateway, start
from tests.gateway.discovery.test_file import ask, known, takers, until_shown


@pytest.fixture(scope="module")
def other() -> Iterator[RunningEngine]:
    with run_engine(EngineConfig(model=MODEL, kv_blocks=400, threads=1)) as running:
        yield running


async def pod(api: ApiServer, name: str, engine: RunningEngine, **conditions: bool) -> None:
    """A slice for each pod, since each engine here has a port of its own."""
    ports: list[Object] = [{"name": "http", "port": urlsplit(engine.url).port, "protocol": "TCP"}]
    await api.put(f"slice-{name}", [endpoint("127.0.0.1", name, **conditions)], ports=ports)


async def behind(gateway: StartGateway, api: ApiServer, tmp_path: Path, **flags: object) -> RunningGateway:
    token = tmp_path / "sa-token"
    token.write_text("t0ken")
    source = {"service": "vllm", "namespace": NAMESPACE, "api_url": api.url, "api_token_file": str(token)}
    kubernetes = [{**source, "api_ca_file": None}]
    return await start(gateway, discovery__kubernetes=kubernetes, poll_interval_s=0.1, **flags)


async def test_pods_come_serve_and_go(
    start_gateway: StartGateway, engine: RunningEngine, other: RunningEngine, tmp_path: Path
) -> None:
    async with api_server() as api:
        await pod(api, "vllm-0", engine)
        gateway = await behind(start_gateway, api, tmp_path, discovery__grace_s=0)
        assert takers(gateway) == ["vllm-0"]
        assert ask(gateway).headers["x-prefixgate-endpoint"] == "vllm-0"
        await pod(api, "vllm-1", other)
        await until_shown(lambda: takers(gateway) == ["vllm-0", "vllm-1"])
        await api.delete("slice-vllm-0")
        await until_shown(lambda: known(gateway) == ["vllm-1"])
        assert ask(gateway).headers["x-prefixgate-endpoint"] == "vllm-1"
        assert 'endpoint="vllm-0"' not in gateway.http.get("/metrics").text


async def test_a_readiness_probe_that_flaps_does_not_lose_what_a_pod_holds(
    start_gateway: StartGateway, engine: RunningEngine, tmp_path: Path
) -> None:
    async with api_server() as api:
        await pod(api, "vllm-0", engine)
        gateway = await behind(start_gateway, api, tmp_path)
        text = f"readiness {STORY}"
        ask(gateway, text)
        await pod(api, "vllm-0", engine, ready=False, serving=False)
        await until_shown(lambda: takers(gateway) == [])
        assert gateway.metric("prefixgate_discovered_endpoints", state="held") == 1
        await pod(api, "vllm-0", engine)
        await until_shown(lambda: takers(gateway) == ["vllm-0"])
        assert int(ask(gateway, text).headers["x-prefixgate-cached-tokens"]) > 0


async def test_a_pod_of_the_same_name_at_another_address_holds_nothing(
    start_gateway: StartGateway, engine: RunningEngine, other: RunningEngine, tmp_path: Path, token_file: Path
) -> None:
    """A StatefulSet gives its pods their names again: what was cached in the one before is not in this one."""
    async with api_server() as api:
        await pod(api, "vllm-0", engine)
        gateway = await behind(start_gateway, api, tmp_path, admin_token_file=token_file)
        text = f"stateful {STORY}"
        ask(gateway, text)
        assert int(ask(gateway, text).headers["x-prefixgate-cached-tokens"]) > 0
        await pod(api, "vllm-0", other)
        headers = {"authorization": "Bearer letmein"}
        await until_shown(lambda: gateway.http.get("/admin/endpoints", headers=headers).json()[0]["url"] == other.url)
        await until_shown(lambda: takers(gateway) == ["vllm-0"])
        answer = ask(gateway, text)
        assert int(answer.headers["x-prefixgate-cached-tokens"]) == 0
        assert answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


def test_a_gateway_that_is_not_in_a_cluster_says_what_it_needs() -> None:
    config = load_config(None, {}, {"discovery.kubernetes": [{"service": "vllm", "namespace": "a"}]})
    with pytest.raises(ConfigInvalid, match="not in a cluster; set api_url"):
        sources_of(config, {})
    assert [source.name for source, _ in sources_of(config, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"})]
    with pytest.raises(ConfigInvalid, match="name a service"):
        load_config(None, {}, {"discovery.kubernetes": [{"namespace": "a"}]})
