"""The acceptance scenarios of billing by their letters, over the wire: client, gateway, an engine that is known."""

import asyncio
import json
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import httpx

from bench.crash import Clients, End, configure
from bench.crash_engine import MODEL, Known, running_known_engine
from bench.mortal_fleet.fleet import free_port
from bench.mortal_fleet.member import Member
from billing.verification.report import verify
from gateway.demo.processes import clean_environment
from tests.gateway.conftest import RunningGateway, StartGateway, settled
from tests.gateway.scripted_engine import (
    USAGE,
    ScriptedEngine,
    answer_chat,
    answer_json,
    chat_stream,
    delta,
    event,
    scripted_engine,
)
from tests.hostile import Behaviour, Peer, stream
from tests.until import until

CHAT_PATH = "/v1/chat/completions"
CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Where are the books?"}]}
COUNTED = (40, 32, 2)


@asynccontextmanager
async def between(
    start: StartGateway, *scripts: Behaviour, routes: frozenset[str] = frozenset(), **flags: object
) -> AsyncIterator[tuple[ScriptedEngine, RunningGateway, httpx.AsyncClient]]:
    """A scripted engine, a gateway to it, a client of that."""
    async with scripted_engine(*scripts, routes=routes) as engine:
        gateway = await asyncio.to_thread(start, engine.url, **flags)
        async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as client:
            yield engine, gateway, client


def opened(path: Path) -> int:
    """Requests in the ledger, settled or not."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        count: int = connection.execute("SELECT count(*) FROM requests").fetchone()[0]
        return count


async def test_f_hanging_up_before_the_first_chunk_pays_the_prompt_once_and_no_answer(
    start_gateway: StartGateway,
) -> None:
    async def prefills(peer: Peer) -> None:
        await peer.read_request()
        await peer.hang()

    async with between(start_gateway, prefills) as (engine, gateway, client):
        async with asyncio.TaskGroup() as group:
            asking = group.create_task(client.post(CHAT_PATH, json=CHAT | {"stream": True}))
            await engine.asked.wait()
            asking.cancel()
        [row] = await settled(gateway, 1)
    assert (row.state, row.prompt_tokens, row.cached_tokens, row.output_tokens) == ("partial", 40, None, 0)
    assert row.flags.split(",") == ["estimated", "unpriced", "unreported"]


async def test_g_a_500_before_a_good_answer_makes_one_row_with_two_attempts(start_gateway: StartGateway) -> None:
    async with (
        scripted_engine(answer_json({"error": "out of memory"}, 500)) as bad,
        scripted_engine(answer_chat("Here.")) as good,
    ):
        gateway = await asyncio.to_thread(start_gateway, bad.url, good.url, scheduling__policy="round_robin")
        async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as client:
            answer = await client.post(CHAT_PATH, json=CHAT)
        [row] = await settled(gateway, 1)
    assert answer.status_code == 200
    assert (row.state, row.prompt_tokens, row.cached_tokens, row.output_tokens) == ("complete", *COUNTED)
    assert row.attempts == 2


async def test_h_usage_in_two_chunks_and_in_every_chunk_is_not_summed(start_gateway: StartGateway) -> None:
    usage = event({"choices": [], "usage": USAGE})
    done = b"data: [DONE]\n\n"
    with_each: list[bytes] = [
        event({"choices": [{"delta": {"content": "x"}}], "usage": USAGE | {"completion_tokens": k}}) for k in (1, 2)
    ]
    twice, always = stream(delta("a"), usage, usage, done), stream(*with_each, usage, done)
    async with between(start_gateway, twice, always) as (_, gateway, client):
        for _ in range(2):
            await client.post(CHAT_PATH, json=CHAT | {"stream": True})
        rows = await settled(gateway, 2)
    assert [(row.prompt_tokens, row.cached_tokens, row.output_tokens) for row in rows] == [COUNTED] * 2


async def test_i_one_provider_id_twice_or_none_makes_a_row_for_each_call(start_gateway: StartGateway) -> None:
    answers = [
        answer_json({"id": name, "choices": [{"message": {"content": "a"}}], "usage": USAGE})
        for name in ("chatcmpl-1", "chatcmpl-1", None, None, "None")
    ]
    async with between(start_gateway, *answers) as (_, gateway, client):
        for _ in answers:
            await client.post(CHAT_PATH, json=CHAT)
        rows = await settled(gateway, 5)
    assert len({row.request_id for row in rows}) == 5


async def test_j_a_client_that_sends_its_own_request_id_twice_has_two_rows_of_ours(start_gateway: StartGateway) -> None:
    headers = {"x-request-id": "mine", "x-litellm-call-id": "mine", "idempotency-key": "mine"}
    async with between(start_gateway, answer_chat("a")) as (_, gateway, client):
        answers = [await client.post(CHAT_PATH, json=CHAT, headers=headers) for _ in range(2)]
        rows = await settled(gateway, 2)
    assert [answer.headers["x-request-id"] for answer in answers] == [row.request_id for row in rows]
    assert "mine" not in {row.request_id for row in rows}


async def test_l_sigterm_under_load_loses_no_row(tmp_path: Path) -> None:
    async with running_known_engine(1) as engine:
        port = free_port()
        config, ledger = configure(tmp_path / "home", engine.url, port)
        command = (sys.executable, "-m", "gateway", "serve", "-c", str(config))
        gateway = Member("gateway", command, tmp_path, clean_environment())
        clients = Clients(f"http://127.0.0.1:{port}", Random(1))
        async with asyncio.TaskGroup() as group:
            calling = group.create_task(clients.run())
            await gateway.start()
            clients.expect(60)
            clients.up.set()
            await clients.enough.wait()
            await gateway.stop()
            calling.cancel()
    query = "SELECT request_id, state FROM requests LEFT JOIN settlements USING (request_id)"
    with closing(sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)) as connection:
        states = dict(connection.execute(query).fetchall())
    assert None not in states.values()
    assert "interrupted" not in states.values()
    served = [call.request_id for call in clients.seen if call.end is End.SERVED]
    assert len(served) >= 60
    assert {states.get(request_id or "") for request_id in served} == {"complete"}


async def test_s_tools_reach_the_engine_in_the_order_and_the_bytes_in_which_they_were_written(
    start_gateway: StartGateway,
) -> None:
    tools = b"""[ {"type":"function","function":{"name":"zebra","parameters":{"z":1,"a":{"y":1,"b":2.50}}}},
 {"type": "function", "function": {"name": "ant", "parameters": {}}} ]"""
    body = b'{"model":"m","tools":' + tools + b',"messages":[{"role":"user","content":"Hi"}]'
    for extra in (b"}", b',"stream":true}'):
        script = stream(*chat_stream("a")) if b"stream" in extra else answer_chat("a")
        async with between(start_gateway, script) as (engine, _, client):
            await client.post(CHAT_PATH, content=body + extra)
        assert engine.bodies[0].startswith(body)


async def test_t_a_decode_engine_that_claims_all_but_one_token_is_disputed_suspected_and_found_out(
    start_gateway: StartGateway, token_file: Path
) -> None:
    """It says that all but one token was cached, although nothing was, and its counters say so."""
    async with running_known_engine(1, split_prefill=True) as engine:
        gateway = await asyncio.to_thread(start_gateway, engine.url, admin_token_file=token_file)
        await until(lambda: engine.pages_read >= 5)  # what comes right behind a sample might be in it
        async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as client:
            for number in range(4):
                message = {"role": "user", "content": f"call {number}"}
                await client.post(CHAT_PATH, json={"model": MODEL, "messages": [message]})
            rows = await settled(gateway, 4)
            await until(
                lambda: gateway.metric("prefixgate_engine_prefix_tokens_total", kind="queries") >= engine.queries
            )
        assert gateway.metric("prefixgate_split_prefill_suspected") == 1
        gateway.server.should_exit = True
        found = await until(lambda: verify(gateway.ledger_path, *_today()), lambda found: found.endpoints[0].spans)
    [check] = found.endpoints
    assert all("disputed" in row.flags for row in rows)
    assert (check.disputed, check.is_suspect, found.is_sound) == (4, True, False)
    assert [span.status.value for span in check.spans] == ["over_reported"]
    assert check.verdicts == {"engine_higher": 4}


def _today() -> tuple[datetime, datetime]:
    now = datetime.now(UTC)
    return now - timedelta(hours=1), now + timedelta(hours=1)


async def test_u_counters_of_gateway_and_engine_and_the_ledger_are_one(start_gateway: StartGateway) -> None:
    numbers = range(40)
    async with running_known_engine(2) as engine:
        gateway = await asyncio.to_thread(start_gateway, engine.url)
        async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as client, asyncio.TaskGroup() as group:
            for number in numbers:
                body = {
                    "model": MODEL,
                    "messages": [{"role": "user", "content": f"call {number}"}],
                    "stream": number % 2 == 0,
                }
                group.create_task(client.post(CHAT_PATH, json=body))
        rows = await settled(gateway, len(numbers))
        known = [Known(number) for number in numbers]
        for kind, truth, column in (
            ("prompt", sum(one.prompt_tokens for one in known), "prompt_tokens"),
            ("cached", sum(one.cached_tokens for one in known), "cached_tokens"),
            ("output", sum(one.output_tokens for one in known), "output_tokens"),
        ):
            assert gateway.metric("prefixgate_tokens_total", kind=kind) == truth
            assert sum(getattr(row, column) for row in rows) == truth
        assert (engine.queries, engine.hits) == (
            sum(one.prompt_tokens for one in known),
            sum(one.cached_tokens for one in known),
        )


async def test_x_reading_a_kept_response_again_is_never_billed(start_gateway: StartGateway) -> None:
    usage = {"input_tokens": 40, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 32}}
    kept = {"id": "resp_1", "object": "response", "output": [], "usage": usage}
    routes = frozenset({"/v1/responses"})
    async with between(start_gateway, answer_json(kept), routes=routes) as (engine, gateway, client):
        engine.pages["/v1/responses/resp_1"] = kept
        asked = await client.post("/v1/responses", json={"model": "m", "input": "Hi"})
        again = [await client.get("/v1/responses/resp_1") for _ in range(3)]
        listed = await client.get("/v1/models")
        [row] = await settled(gateway, 1)
        assert opened(gateway.ledger_path) == 1
    assert [answer.status_code for answer in (asked, *again, listed)] == [200] * 5
    assert all(json.loads(answer.content) == kept for answer in again)
    assert (row.prompt_tokens, row.cached_tokens, row.output_tokens) == COUNTED


async def test_3e_58_a_streamed_response_is_counted_once(start_gateway: StartGateway) -> None:
    usage = {"input_tokens": 40, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 32}}
    events = [
        event({"type": "response.created", "response": {"id": "resp_1", "usage": None}}),
        event({"type": "response.output_text.delta", "delta": "Here."}),
        event({"type": "response.completed", "response": {"id": "resp_1", "usage": usage}}),
    ]
    async with between(start_gateway, stream(*events), routes=frozenset({"/v1/responses"})) as (_, gateway, client):
        await client.post("/v1/responses", json={"model": "m", "input": "Hi", "stream": True})
        [row] = await settled(gateway, 1)
        assert gateway.metric("prefixgate_tokens_total", kind="prompt") == 40
    assert (row.prompt_tokens, row.cached_tokens, row.output_tokens) == COUNTED
