"""What users of gateways have seen go wrong with bytes and bills: streams that changed, usage that vanished or was 0.

Each test is one such story, with an engine that answers from a script, so that the bytes on both sides are known.
"""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import httpx
import pytest

from backends.reference.model_files import ensure_model
from tests.gateway.conftest import RunningGateway, StartGateway, settled
from tests.gateway.corpora import Body, chats
from tests.gateway.scripted_engine import (
    USAGE,
    ScriptedEngine,
    answer_chat,
    answer_json,
    chat_stream,
    delta,
    scripted_engine,
)
from tests.hostile import Behaviour, stream

CHAT_PATH = "/v1/chat/completions"
CHAT: Body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
LETTERS = "🦜 日本語 한국어 👩‍👩‍👧 é"


@asynccontextmanager
async def between(
    start: StartGateway, *scripts: Behaviour, routes: frozenset[str] = frozenset(), **flags: object
) -> AsyncIterator[tuple[ScriptedEngine, RunningGateway, httpx.AsyncClient]]:
    """A scripted engine, a gateway to it, a client of that."""
    async with scripted_engine(*scripts, routes=routes) as engine:
        gateway = await asyncio.to_thread(start, engine.url, **flags)
        async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as client:
            yield engine, gateway, client


async def test_cjk_emoji_boundary_a_stream_cut_inside_characters_arrives_byte_for_byte(
    start_gateway: StartGateway,
) -> None:
    literal = b"data: " + json.dumps({"choices": [{"delta": {"content": LETTERS}}]}, ensure_ascii=False).encode()
    events = [*map(delta, LETTERS), literal + b"\n\n", *chat_stream(LETTERS)]
    for asked in (True, False):
        body = CHAT | {"stream": True, "stream_options": {"include_usage": asked}}
        async with between(start_gateway, stream(*events, trickle=True)) as (_, _, client):
            answer = await client.post(CHAT_PATH, json=body)
        assert answer.content == b"".join(one for one in events if asked or b'"usage"' not in one)


async def test_cjk_emoji_boundary_a_stream_of_messages_keeps_every_character(start_gateway: StartGateway) -> None:
    literal = b"data: " + json.dumps({"choices": [{"delta": {"content": LETTERS}}]}, ensure_ascii=False).encode()
    events = [*map(delta, LETTERS), literal + b"\n\n", *chat_stream(LETTERS)]
    body = CHAT | {"stream": True, "max_tokens": 9}
    async with between(start_gateway, stream(*events, trickle=True)) as (_, gateway, client):
        answer = await client.post("/v1/messages", json=body)
        [row] = await settled(gateway, 1)
    said = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
    text = "".join(one["delta"]["text"] for one in said if one["type"] == "content_block_delta")
    assert text == LETTERS * 3
    assert (row.prompt_tokens, row.cached_tokens, row.output_tokens) == (40, 32, 2)


@pytest.mark.parametrize(
    "given",
    [
        b'{"model":"m","messages":[],"stream":true}',
        b'{"model":"m", "stream_options":null ,"messages":[],"stream":true}',
    ],
)
async def test_stream_usage_injection_usage_is_asked_for_recorded_and_not_shown(
    start_gateway: StartGateway, given: bytes
) -> None:
    events = chat_stream("a", "b")
    async with between(start_gateway, stream(*events)) as (engine, gateway, client):
        answer = await client.post(CHAT_PATH, content=given)
        [row] = await settled(gateway, 1)
    assert json.loads(engine.bodies[0])["stream_options"] == {"include_usage": True}
    assert answer.content == b"".join(one for one in events if b'"usage"' not in one)
    assert (row.prompt_tokens, row.cached_tokens, row.output_tokens) == (40, 32, 2)


@pytest.mark.parametrize("streamed", [False, True])
async def test_usage_missing_is_unknown_and_never_zero(start_gateway: StartGateway, streamed: bool) -> None:
    silent = stream(delta("a"), b"data: [DONE]\n\n") if streamed else answer_chat("a", usage=None)
    async with between(start_gateway, silent) as (_, gateway, client):
        await client.post(CHAT_PATH, json=CHAT | {"stream": streamed})
        [row] = await settled(gateway, 1)
    assert row.state == "complete"
    assert row.cached_tokens is None
    assert (row.prompt_tokens, row.output_tokens) == (None, None)
    assert "unreported" in row.flags


async def test_usage_missing_of_cached_tokens_alone_is_unknown_too(start_gateway: StartGateway) -> None:
    counts = {"prompt_tokens": 40, "completion_tokens": 2, "prompt_tokens_details": None}
    async with between(start_gateway, answer_chat("a", usage=counts)) as (_, gateway, client):
        await client.post(CHAT_PATH, json=CHAT)
        [row] = await settled(gateway, 1)
    assert (row.prompt_tokens, row.cached_tokens, row.output_tokens) == (40, None, 2)


PRICES = """
currency: USD
prices:
  - {model: m, input_per_mtok: 1, cached_input_ratio: 0.1, output_per_mtok: 4, from: 2020-01-01}
"""


def charged(path: Path) -> list[tuple[int, int]]:
    """What each request costs, oldest first: units and pico-units."""
    query = """SELECT charged_units, charged_pico FROM settlements JOIN requests USING (request_id)
               ORDER BY opened_at_us"""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        return connection.execute(query).fetchall()


async def test_anthropic_vs_openai_counts_both_conventions_cost_the_same(
    start_gateway: StartGateway, tmp_path: Path
) -> None:
    prices = tmp_path / "prices.yaml"
    prices.write_text(PRICES)
    message = {
        "type": "message",
        "content": [],
        "usage": {
            "input_tokens": 8,
            "cache_read_input_tokens": 32,
            "cache_creation_input_tokens": 0,
            "output_tokens": 2,
        },
    }
    scripts = [answer_chat("a", usage=USAGE), answer_json(message)]
    speaks_both = frozenset({"/v1/messages"})
    async with between(start_gateway, *scripts, routes=speaks_both, prices_file=prices) as (engine, gateway, client):
        await client.post(CHAT_PATH, json=CHAT)
        answer = await client.post("/v1/messages", json=CHAT | {"max_tokens": 9})
        rows = await settled(gateway, 2)
    assert answer.json() == message
    assert engine.requests[1].startswith(b"POST /v1/messages ")
    assert [(row.prompt_tokens, row.cached_tokens, row.output_tokens) for row in rows] == [(40, 32, 2)] * 2
    first, second = charged(gateway.ledger_path)
    assert first == second == (0, 8 * 1_000_000 + 32 * 100_000 + 2 * 4_000_000)


async def test_anthropic_vs_openai_counts_a_translated_answer_costs_what_the_chat_did(
    start_gateway: StartGateway,
) -> None:
    async with between(start_gateway, answer_chat("a", usage=USAGE)) as (_, gateway, client):
        usage = (await client.post("/v1/messages", json=CHAT | {"max_tokens": 9})).json()["usage"]
        [row] = await settled(gateway, 1)
    assert (usage["input_tokens"], usage["cache_read_input_tokens"], usage["output_tokens"]) == (8, 32, 2)
    assert (row.prompt_tokens, row.cached_tokens, row.output_tokens) == (40, 32, 2)


ODD = b"""{ "unknown" : [1.0, 1e2, 12345678901234567890, -0.0], "model":"m",
\t"messages":[{"role":"user","content":"\\u00e9\\/\\ud83e\\udd9c \xc3\xa9","extra":null}], "temperature":0.10,
 "a":{"b":{"c":[]}} ,"unknown":2, "logit_bias":{"1":-100.00} }\r\n"""


async def test_unknown_fields_byte_exact_what_the_client_wrote_is_what_the_engine_reads(
    start_gateway: StartGateway,
) -> None:
    async with between(start_gateway, answer_chat("a"), isolation="none") as (engine, _, client):
        await client.post(CHAT_PATH, content=ODD)
    [body] = engine.bodies
    assert body == ODD


async def test_unknown_fields_byte_exact_beside_what_the_gateway_sets(start_gateway: StartGateway) -> None:
    async with between(start_gateway, answer_chat("a")) as (engine, _, client):
        await client.post(CHAT_PATH, content=ODD)
    [body] = engine.bodies
    written = ODD.rstrip()[:-1]
    assert body.startswith(written)
    assert json.loads(b"{" + body[len(written) :].lstrip(b" ,")).keys() == {"cache_salt"}


async def test_unknown_fields_byte_exact_for_every_conversation_of_the_corpora(start_gateway: StartGateway) -> None:
    given = [row.raw.replace(b'"demo-model"', b'"m"') for row in chats()][::12]
    models = {"m": {"tokenizer": ensure_model("tiny")}}
    async with between(start_gateway, answer_chat("a"), isolation="none", models=models) as (engine, _, client):
        for body in given:
            streamed = b'"stream": true' in body
            assert (await client.post(CHAT_PATH, content=body)).status_code == 200
            arrived = engine.bodies[-1]
            assert arrived == body or (streamed and arrived.startswith(body[:-1]))
