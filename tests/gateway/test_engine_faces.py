"""A gateway in front of every kind of engine: what each refuses never reaches it, what each reports is what is kept."""

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from backends.features import Feature, Standing
from backends.simulated.serving import DIALECTS, ServerSpec, SimulatedServer
from tests.backends.dialects.contract import CONVENTIONS, Convention
from tests.gateway.conftest import RunningGateway, StartGateway, settled

MODEL = "simulated"
HINTS = {
    "metadata": {"team": "search"},
    "prompt_cache_key": "a-conversation",
    "safety_identifier": "somebody",
    "service_tier": "auto",
    "store": False,
}
"""What OpenAI's clients send along, and change nothing by."""


@pytest.fixture(params=DIALECTS)
def server(request: pytest.FixtureRequest) -> Iterator[SimulatedServer]:
    with SimulatedServer(ServerSpec(dialect=request.param, model=MODEL, speed=200)) as running:
        yield running


def chat(url: str, content: str, **more: object) -> httpx.Response:
    body = {"model": MODEL, "messages": [{"role": "user", "content": content}], "max_tokens": 3, **more}
    return httpx.post(f"{url}/v1/chat/completions", json=body, timeout=30)


def prompt() -> str:
    """Some two hundred words that nobody has sent before."""
    return " ".join(secrets.token_hex(2) for _ in range(200))


def before(server: SimulatedServer, start_gateway: StartGateway) -> RunningGateway:
    return start_gateway(server.url, isolation="none")


def test_only_trtllm_refuses_what_openais_clients_send_along_and_it_never_gets_it(
    server: SimulatedServer, start_gateway: StartGateway
) -> None:
    gateway = before(server, start_gateway)
    hints: dict[str, Any] = HINTS
    assert (chat(server.url, "hello", **hints).status_code == 400) is (server.spec.dialect == "trtllm")
    answer = chat(gateway.url, "hello", **hints)
    assert answer.status_code == 200, answer.text
    assert chat(gateway.url, "hello", prompt_cache_key="x", stream=True).status_code == 200


async def test_cached_tokens_are_kept_as_reported_and_not_made_up_where_they_are_not(
    server: SimulatedServer, start_gateway: StartGateway
) -> None:
    gateway = before(server, start_gateway)
    said = prompt()
    for _ in range(2):
        assert chat(gateway.url, said).status_code == 200
    cold, warm = await settled(gateway, 2)
    assert cold.prompt_tokens == warm.prompt_tokens
    assert warm.prompt_tokens is not None
    if CONVENTIONS[server.spec.dialect] is Convention.NOTHING:
        assert (cold.cached_tokens, warm.cached_tokens) == (None, None)
    else:
        assert warm.cached_tokens is not None
        assert (cold.cached_tokens or 0) < warm.cached_tokens < warm.prompt_tokens


def test_an_unknown_model_is_refused_whether_or_not_the_engine_would(
    server: SimulatedServer, start_gateway: StartGateway
) -> None:
    gateway = before(server, start_gateway)
    answer = chat(gateway.url, "hello", model="there/is-no-such-model")
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "model_not_found"


def test_the_admin_api_shows_the_engine_and_what_is_turned_on_there(
    server: SimulatedServer, start_gateway: StartGateway, token_file: Path
) -> None:
    gateway = start_gateway(server.url, isolation="none", admin_token_file=token_file)
    page = httpx.get(f"{gateway.url}/admin/endpoints", headers={"authorization": "Bearer letmein"}).json()
    [shown] = page if isinstance(page, list) else page["endpoints"]
    assert shown["engine"] == server.spec.dialect
    assert set(shown["features"]) == {feature.name.lower() for feature in Feature}
    assert set(shown["features"].values()) <= {standing.value for standing in Standing}


def test_a_model_of_ollama_answers_to_its_name_without_a_tag(start_gateway: StartGateway) -> None:
    with SimulatedServer(ServerSpec(dialect="ollama", model="llama3.2", speed=200)) as server:
        gateway = start_gateway(server.url, isolation="none")
        names = [one["id"] for one in httpx.get(f"{gateway.url}/v1/models").json()["data"]]
        assert sorted(names) == ["llama3.2", "llama3.2:latest"]
        for model in (*names, None):
            body = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 2}
            body |= {} if model is None else {"model": model}
            answer = httpx.post(f"{gateway.url}/v1/chat/completions", json=body, timeout=30)
            assert answer.status_code == 200, answer.text
