"""What a key is for, and the tags that its requests have in the ledger."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from tests.gateway.conftest import RunningGateway, StartGateway, settled, start
from tests.gateway.limited import KEY, OTHER_KEY, bearer, keys_file, post
from tests.gateway.scripted_engine import ScriptedEngine, answer_chat, scripted_engine


@pytest.fixture
async def engine() -> AsyncIterator[ScriptedEngine]:
    async with scripted_engine(answer_chat("Hi")) as running:
        yield running


async def test_scopes_narrow_a_key_to_models_endpoints_and_routes(
    start_gateway: StartGateway, tmp_path: Path, client: httpx.AsyncClient
) -> None:
    async with scripted_engine(answer_chat("one")) as one, scripted_engine(answer_chat("two")) as two:
        gateway = await start(
            start_gateway,
            one.url,
            two.url,
            keys_file=keys_file(tmp_path, key={"scopes": {"endpoints": ["e1"], "routes": ["/v1/chat/completions"]}}),
        )
        texts = [(await post(client, gateway.url)).json()["choices"][0]["message"]["content"] for _ in range(6)]
        assert set(texts) == {"two"}
        elsewhere = await client.post(
            f"{gateway.url}/v1/completions", json={"model": "m", "prompt": "x"}, headers=bearer()
        )
        assert (elsewhere.status_code, elsewhere.json()["error"]["code"]) == (403, "not_allowed")


async def test_a_key_is_for_its_models_alone(
    engine: ScriptedEngine, start_gateway: StartGateway, tmp_path: Path, client: httpx.AsyncClient
) -> None:
    gateway = await start(
        start_gateway, engine.url, keys_file=keys_file(tmp_path, key={"scopes": {"models": ["llama-*"]}})
    )
    refused = await post(client, gateway.url)
    assert (refused.status_code, refused.json()["error"]["param"]) == (403, "model")


async def test_a_key_for_one_model_gets_no_other_by_a_field_that_names_an_adapter(
    engine: ScriptedEngine, start_gateway: StartGateway, tmp_path: Path, client: httpx.AsyncClient
) -> None:
    gateway = await start(start_gateway, engine.url, keys_file=keys_file(tmp_path, key={"scopes": {"models": ["m"]}}))
    assert (await post(client, gateway.url, lora_path="theirs")).status_code == 403
    assert (await post(client, gateway.url)).status_code == 200


async def test_a_key_for_one_model_gets_no_other_by_naming_none_on_a_free_path(
    engine: ScriptedEngine, start_gateway: StartGateway, tmp_path: Path, client: httpx.AsyncClient
) -> None:
    gateway = await start(
        start_gateway,
        engine.url,
        keys_file=keys_file(tmp_path, key={"scopes": {"models": ["llama-*"]}}, other={"scopes": {"models": ["m"]}}),
    )
    asked = {"prompt": "Where are the books on gravity?"}
    answers = [
        await client.post(f"{gateway.url}/tokenize", json=asked, headers=bearer(key)) for key in (KEY, OTHER_KEY)
    ]
    assert [answer.status_code for answer in answers] == [503, 200]


def tags(gateway: RunningGateway) -> list[str]:
    with closing(sqlite3.connect(gateway.ledger_path)) as connection:
        return [row[0] for row in connection.execute("SELECT tags FROM requests")]


async def test_the_tags_of_tenant_and_key_are_on_the_row_above_the_clients(
    engine: ScriptedEngine, start_gateway: StartGateway, tmp_path: Path, client: httpx.AsyncClient
) -> None:
    keys = keys_file(tmp_path, key={"tags": {"team": "search"}}, tags={"plan": "gold", "team": "none"})
    gateway = await start(start_gateway, engine.url, keys_file=keys)
    await client.post(
        f"{gateway.url}/v1/chat/completions",
        json={"model": "m", "messages": [{"role": "user", "content": "x"}]},
        headers={**bearer(), "x-prefixgate-tags": "team=mine, run=7"},
    )
    await settled(gateway, 1)
    assert tags(gateway) == ['{"plan":"gold","run":"7","team":"search"}']
