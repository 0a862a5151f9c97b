"""The whole path with real engines: a real model with a real prefix cache, the official client, the real ledger."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from backends.reference.embedded import RunningEngine, run_engine
from backends.reference.model_files import ensure_model
from backends.reference.types import EngineConfig
from gateway.edge.auth import new_key
from tests.gateway.conftest import RunningGateway, StartGateway, ledger_rows, settled
from tests.until import until

LIBRARY = "You are a careful assistant of a small library. " + " ".join(
    f"Rule {n}: answer politely, cite shelf number {7 * n} and never guess." for n in range(1, 16)
)


def chat(question: str, system: str = LIBRARY) -> list[Any]:
    return [{"role": "system", "content": system}, {"role": "user", "content": question}]


@pytest.fixture(scope="module")
def engines() -> Iterator[list[RunningEngine]]:
    config = EngineConfig(model="tiny", served_model_name="tiny", kv_blocks=600, threads=1)
    with run_engine(config) as one, run_engine(config) as two:
        yield [one, two]


@pytest.fixture(autouse=True)
def _cold(engines: list[RunningEngine]) -> None:
    for engine in engines:
        httpx.post(f"{engine.url}/reset_prefix_cache").raise_for_status()


@pytest.fixture
def gateway(engines: list[RunningEngine], start_gateway: StartGateway) -> RunningGateway:
    return start_gateway(*(e.url for e in engines), models={"tiny": {"tokenizer": ensure_model("tiny")}})


def client_of(gateway: RunningGateway, key: str = "any") -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=key, max_retries=0, timeout=60)


def hits(engine: RunningEngine) -> float:
    text = httpx.get(f"{engine.url}/metrics").text
    lines = [line for line in text.splitlines() if line.startswith("vllm:prefix_cache_hits_total{")]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def test_the_official_client_gets_an_answer_and_its_usage(gateway: RunningGateway) -> None:
    with client_of(gateway) as client:
        answer = client.chat.completions.create(model="tiny", messages=chat("Hello?"), max_tokens=4, temperature=0)
        assert answer.usage is not None
        assert answer.usage.completion_tokens == 4
        completion = client.completions.create(model="tiny", prompt="Once upon a time", max_tokens=3)
        assert completion.usage is not None
        assert completion.usage.completion_tokens == 3
        assert [model.id for model in client.models.list()] == ["tiny"]


def test_a_stream_has_usage_only_for_the_client_who_asked(gateway: RunningGateway) -> None:
    with client_of(gateway) as client:
        arguments: dict[str, Any] = {"model": "tiny", "messages": chat("Hi"), "max_tokens": 5, "temperature": 0}
        without = list(client.chat.completions.create(**arguments, stream=True))
        asked = list(client.chat.completions.create(**arguments, stream=True, stream_options={"include_usage": True}))
    assert [chunk.usage for chunk in without if chunk.usage] == []
    assert all(chunk.choices for chunk in without)
    assert asked[-1].usage is not None
    assert asked[-1].usage.completion_tokens == 5
    texts = ["".join(c.choices[0].delta.content or "" for c in chunks if c.choices) for chunks in (without, asked)]
    assert texts[0] == texts[1]


async def test_the_second_turn_goes_where_the_first_was_and_its_prefix_is_not_computed_again(
    gateway: RunningGateway, engines: list[RunningEngine]
) -> None:
    before = sum(map(hits, engines))
    async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as client:
        answers = [
            await client.post(
                "/v1/chat/completions",
                json={"model": "tiny", "messages": chat(question), "max_tokens": 2, "temperature": 0},
            )
            for question in ("Where is gravity?", "Where is botany?", "Where is music?", "Where is law?")
        ]
    rows = await settled(gateway, 4)
    assert len({answer.headers["x-prefixgate-endpoint"] for answer in answers}) == 1
    assert [answer.headers["x-prefixgate-reason"] for answer in answers] == ["no_prefix"] + ["prefix_hit"] * 3
    assert [row.cached_tokens for row in rows] == [row.expected_cached_tokens for row in rows]
    assert all(row.cached_tokens and row.cached_tokens > 200 for row in rows[1:])
    assert sum(row.cached_tokens or 0 for row in rows) == sum(map(hits, engines)) - before
    assert gateway.metric("prefixgate_token_count_mismatch_total") == 0


async def test_without_a_local_tokenizer_the_engines_own_is_asked(
    engines: list[RunningEngine], start_gateway: StartGateway
) -> None:
    gateway = await asyncio.to_thread(start_gateway, *(e.url for e in engines))
    async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as client:
        for question in ("Where is gravity?", "Where is botany?"):
            body = {"model": "tiny", "messages": chat(question), "max_tokens": 2}
            assert (await client.post("/v1/chat/completions", json=body)).status_code == 200
    rows = await settled(gateway, 2)
    assert rows[1].expected_cached_tokens == rows[1].cached_tokens
    assert rows[1].cached_tokens is not None
    assert rows[1].cached_tokens > 200


async def test_two_share_groups_never_hit_each_others_prefixes(
    engines: list[RunningEngine], start_gateway: StartGateway, tmp_path: Path
) -> None:
    made = {name: new_key() for name in ("acme", "acme-lab", "globex")}
    keys = tmp_path / "keys.yaml"
    keys.write_text(
        "tenants:\n"
        + "".join(
            f"  - {{id: {name}, share_group: {name[:4]}, keys: [{{id: {name}-1, sha256: {digest}}}]}}\n"
            for name, (_, digest) in made.items()
        )
    )
    gateway = await asyncio.to_thread(
        start_gateway, engines[0].url, keys_file=keys, models={"tiny": {"tokenizer": ensure_model("tiny")}}
    )
    cached: dict[str, int] = {}
    for name, (key, _) in made.items():
        with client_of(gateway, key) as client:
            answer = await asyncio.to_thread(
                client.chat.completions.create, model="tiny", messages=chat("Hi"), max_tokens=1
            )
        assert answer.usage is not None
        assert answer.usage.prompt_tokens_details is not None
        cached[name] = answer.usage.prompt_tokens_details.cached_tokens or 0
    assert cached["acme"] == 0
    assert cached["acme-lab"] > 200
    assert cached["globex"] == 0
    with client_of(gateway, "pg-wrong") as client, pytest.raises(openai.AuthenticationError):
        client.chat.completions.create(model="tiny", messages=chat("Hi"))
    rows = await settled(gateway, 3)
    assert [row.tenant_id for row in rows] == list(made)


async def generation_of(client: httpx.AsyncClient) -> int | None:
    """The generation of the only endpoint, None while it is down."""
    endpoint = (await client.get("/health")).json()["endpoints"]["e0"]
    return int(endpoint["generation"]) if endpoint["healthy"] else None


async def test_backend_restart_fence_a_restarted_engine_is_not_expected_to_hold_anything(
    start_gateway: StartGateway,
) -> None:
    config = EngineConfig(model="tiny", served_model_name="tiny", kv_blocks=600, threads=1)
    with run_engine(config) as engine:
        url = engine.url
        gateway = await asyncio.to_thread(start_gateway, url, models={"tiny": {"tokenizer": ensure_model("tiny")}})
        async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as client:
            body = {"model": "tiny", "messages": chat("Hi"), "max_tokens": 1}
            await client.post("/v1/chat/completions", json=body)
            again = await client.post("/v1/chat/completions", json=body)
            assert int(again.headers["x-prefixgate-cached-tokens"]) > 0
            before = await generation_of(client)
    port = int(url.rpartition(":")[2])
    with run_engine(config, port=port):
        async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as client:
            await until(lambda: generation_of(client), lambda seen: seen is not None and seen != before)
            answer = await client.post("/v1/chat/completions", json=body)
        assert answer.status_code == 200
        assert answer.headers["x-prefixgate-cached-tokens"] == "0"


def test_a_prompt_over_the_context_gets_the_engines_clear_error(gateway: RunningGateway) -> None:
    with client_of(gateway) as client, pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model="tiny", messages=chat("word " * 9000), max_tokens=1)
    assert "token" in str(refused.value)


SERVE = """
import sys
from gateway.cli import main
sys.argv = ["prefixgate", *sys.argv[1:]]
main()
"""


def start_process(engine: RunningEngine, ledger: Path) -> tuple[subprocess.Popen[str], str]:
    arguments = ["serve", "--backend", engine.url, "--port", "0", "--ledger", str(ledger), "--log-level", "error"]
    process = subprocess.Popen([sys.executable, "-c", SERVE, *arguments], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, json.loads(process.stdout.readline())["url"]


def test_kill_9_in_the_middle_of_a_stream_loses_nothing_acknowledged(
    engines: list[RunningEngine], tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger.db"
    process, url = start_process(engines[0], ledger)
    try:
        with httpx.Client(base_url=url, timeout=60) as client:
            for question in ("one", "two"):
                body = {"model": "tiny", "messages": chat(question), "max_tokens": 3}
                client.post("/v1/chat/completions", json=body).raise_for_status()
            endless = {
                "model": "tiny",
                "messages": chat("three"),
                "max_tokens": 500,
                "stream": True,
                "ignore_eos": True,
            }
            with client.stream("POST", "/v1/chat/completions", json=endless) as answer:
                chunks = answer.iter_raw()
                next(chunks)
                process.kill()
                process.wait(10)
                with pytest.raises(httpx.HTTPError):
                    list(chunks)
    finally:
        process.kill()
        process.wait(10)
        assert process.stdout is not None
        process.stdout.close()
    again, _ = start_process(engines[0], ledger)
    try:
        rows = ledger_rows(ledger)
    finally:
        again.terminate()
        assert again.wait(20) == 0
        assert again.stdout is not None
        again.stdout.close()
    assert [row.state for row in rows] == ["complete", "complete", "interrupted"]
    assert [row.output_tokens for row in rows] == [3, 3, None]
