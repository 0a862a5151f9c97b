"""Names that clients use for models, through a gateway: aliases, arms, and who stands in."""

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.gateway.conftest import RunningGateway, StartGateway, settled, start
from tests.gateway.limited import CENT_PER_TOKEN, bearer, keys_file
from tests.gateway.limited import KEY as TENANT_KEY
from tests.gateway.scripted_engine import ScriptedEngine, answer_chat, answer_json, chat_stream, scripted_engine
from tests.gateway.taps import Taps
from tests.hostile import Behaviour, Peer

HELLO = [{"role": "user", "content": "Hello"}]


def rows(gateway: RunningGateway) -> list[dict[str, Any]]:
    """Of the ledger, in the order in which they were opened."""
    query = """SELECT request_id, model, model_asked, route_rule, state, full_units, full_pico
               FROM requests JOIN settlements USING (request_id) ORDER BY opened_at_us, request_id"""
    with closing(sqlite3.connect(gateway.ledger_path)) as connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute(query)]


def answers(model: str, *, status: int = 200) -> Behaviour:
    return answer_json(
        {"model": model, "choices": [{"index": 0, "message": {"content": "Hi"}}], "usage": USAGE}, status
    )


USAGE = {"prompt_tokens": 40, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 0}}


async def ask(
    client: httpx.AsyncClient,
    gateway: RunningGateway,
    model: str,
    headers: dict[str, str] | None = None,
    **more: object,
) -> httpx.Response:
    body = {"model": model, "messages": HELLO, **more}
    return await client.post(f"{gateway.url}/v1/chat/completions", json=body, headers=headers)


def models_at(engine: ScriptedEngine) -> list[str]:
    return [json.loads(body)["model"] for body in engine.bodies]


async def test_an_alias_leads_to_its_model_and_nothing_else_of_the_body_changes(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    body = b'{ "messages":[{"role":"user","content":"Hello"}] , "model" : "gpt-4o","n":1.0, "seed": 1e3,"stream":false}'
    async with scripted_engine(answers("m")) as engine:
        gateway = await start(start_gateway, engine.url, model_routes=[{"name": "gpt-4o", "model": "m"}])
        answer = await client.post(f"{gateway.url}/v1/chat/completions", content=body)
        await settled(gateway, 1)
    spliced = engine.bodies[0]
    assert spliced.startswith(body.replace(b'"gpt-4o"', b'"m"')[:-1])
    assert answer.json()["model"] == "m", "the answer is the engine's own"
    assert (answer.headers["x-prefixgate-model"], answer.headers["x-prefixgate-route-rule"]) == ("m", "alias")
    (row,) = rows(gateway)
    assert (row["model"], row["model_asked"], row["route_rule"]) == ("m", "gpt-4o", "alias")
    assert gateway.metric("prefixgate_model_route_requests_total", route="gpt-4o", rule="alias") == 1


async def test_a_name_that_is_no_alias_goes_on_as_it_came(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async with scripted_engine(answers("m")) as engine:
        gateway = await start(start_gateway, engine.url, model_routes=[{"name": "gpt-4o", "model": "m"}])
        answer = await ask(client, gateway, "m")
        unknown = await ask(client, gateway, "gpt-5")
        await settled(gateway, 1)
    assert "x-prefixgate-model" not in answer.headers
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "model_not_found")
    assert [(row["model_asked"], row["route_rule"]) for row in rows(gateway)] == [(None, None)]


async def test_every_dialect_may_use_an_alias_also_where_it_is_translated(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async with scripted_engine(answers("m")) as engine:
        gateway = await start(start_gateway, engine.url, model_routes=[{"name": "fast", "model": "m"}])
        messages = {"model": "fast", "max_tokens": 4, "messages": HELLO}
        translated = await client.post(f"{gateway.url}/v1/messages", json=messages)
        responses = await client.post(
            f"{gateway.url}/v1/responses", json={"model": "fast", "input": "Hello", "store": False}
        )
        text = await client.post(f"{gateway.url}/v1/completions", json={"model": "fast", "prompt": "Hello"})
        await settled(gateway, 3)
    assert [one.status_code for one in (translated, responses, text)] == [200, 200, 200]
    assert translated.json()["model"] == "m"
    assert models_at(engine) == ["m"] * 3


async def test_aliases_are_among_the_models_and_known_to_paths_that_cost_nothing(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async with scripted_engine(answers("m")) as engine:
        routes = [
            {"name": "fast", "model": "m"},
            {"name": "half", "arms": [{"model": "m", "name": "a"}, {"model": "away", "name": "b"}]},
            {"name": "away-too", "model": "away"},
            {"name": "m", "fallbacks": ["away"]},
        ]
        gateway = await start(start_gateway, engine.url, model_routes=routes)
        listed = (await client.get(f"{gateway.url}/v1/models")).json()["data"]
        one = (await client.get(f"{gateway.url}/v1/models/fast")).json()
        counted = await client.post(
            f"{gateway.url}/v1/messages/count_tokens", json={"model": "fast", "messages": HELLO}
        )
        tokens = await client.post(f"{gateway.url}/tokenize", json={"model": "fast", "prompt": "Hello"})
    assert [(model["id"], model.get("root")) for model in listed] == [("fast", "m"), ("half", None), ("m", None)]
    assert one["max_model_len"] == 2048
    assert (counted.status_code, counted.json()) == (200, {"input_tokens": 40})
    assert tokens.status_code == 200


async def test_a_key_is_for_names_as_clients_write_them(
    start_gateway: StartGateway, client: httpx.AsyncClient, tmp_path: Path
) -> None:
    async with scripted_engine(answers("m")) as engine:
        gateway = await start(
            start_gateway,
            engine.url,
            model_routes=[{"name": "fast", "model": "m"}],
            keys_file=keys_file(tmp_path, key={"scopes": {"models": ["fast"]}}),
        )
        allowed = await ask(client, gateway, "fast", bearer())
        refused = await ask(client, gateway, "m", bearer())
        free = [
            await client.post(f"{gateway.url}/tokenize", json={"model": model, "prompt": "x"}, headers=bearer())
            for model in ("fast", "m")
        ]
    assert (allowed.status_code, refused.status_code) == (200, 403)
    assert "'m'" in refused.json()["error"]["message"]
    assert [one.status_code for one in free] == [200, 403]


async def test_a_split_keeps_conversations_together_and_says_which_arm(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async with scripted_engine(answers("m")) as one, scripted_engine(answers("n"), model="n") as two:
        arms = [{"model": "m", "name": "stable", "weight": 1}, {"model": "n", "name": "canary", "weight": 1}]
        gateway = await start(start_gateway, one.url, two.url, model_routes=[{"name": "fast", "arms": arms}])
        for at in range(12):
            for turn in range(2):
                said = [{"role": "user", "content": f"conversation {at}"}]
                said += [{"role": "assistant", "content": "Hi"}, {"role": "user", "content": "More"}] * turn
                await ask(client, gateway, "fast", messages=said)
        await settled(gateway, 24)
    of_arm = [row["route_rule"] for row in rows(gateway)]
    assert of_arm[::2] == of_arm[1::2], "both turns of each"
    assert set(of_arm) == {"split:stable", "split:canary"}
    assert gateway.metric("prefixgate_model_route_requests_total", rule="split:canary") == len(two.bodies)
    assert {*models_at(one)} | {*models_at(two)} == {"m", "n"}


async def test_arms_may_be_endpoints_of_one_model_and_one_without_any_is_passed_over(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async with scripted_engine(answers("m")) as one, scripted_engine(answers("m")) as two:
        arms = [
            {"model": "m", "name": "old", "endpoints": ["e0"]},
            {"model": "m", "name": "new", "endpoints": ["e1*"]},
            {"model": "m", "name": "gone", "endpoints": ["pod-*"]},
        ]
        gateway = await start(
            start_gateway, one.url, two.url, model_routes=[{"name": "m", "sticky": "request", "arms": arms}]
        )
        found = [await ask(client, gateway, "m") for _ in range(24)]
    places = {(one.headers["x-prefixgate-route-rule"], one.headers["x-prefixgate-endpoint"]) for one in found}
    assert places == {("split:old", "e0"), ("split:new", "e1")}
    assert [row["model_asked"] for row in rows(gateway)] == [None] * 24


FALLBACK = [{"name": "m", "fallbacks": ["gone", "n"]}]


@pytest.mark.parametrize("status", [500, 503])
async def test_where_all_endpoints_fail_another_model_answers_and_says_so(
    start_gateway: StartGateway, client: httpx.AsyncClient, tmp_path: Path, status: int
) -> None:
    async with scripted_engine(answers("m", status=status)) as one, scripted_engine(answers("n"), model="n") as two:
        gateway = await start(
            start_gateway, one.url, two.url, model_routes=FALLBACK, prices_file=prices(tmp_path, m="7", n="1")
        )
        answer = await ask(client, gateway, "m")
        await settled(gateway, 2)
    assert answer.status_code == 200
    assert (answer.json()["model"], answer.headers["x-prefixgate-model"]) == ("n", "n")
    assert answer.headers["x-prefixgate-route-rule"] == "fallback:2"
    failed, served = rows(gateway)
    assert (failed["model"], failed["model_asked"], failed["state"]) == ("m", None, "failed")
    assert (served["model"], served["model_asked"], served["route_rule"]) == ("n", "m", "fallback:2")
    assert served["request_id"] == f"{failed['request_id']}-3" == answer.headers["x-request-id"]
    assert served["full_units"] * 10**12 + served["full_pico"] == 40 * 10**6, "at the price of what answered"
    assert models_at(two) == ["n"]
    assert gateway.metric("prefixgate_model_fallbacks_total", route="m", why="failed") == 1
    assert gateway.metric("prefixgate_model_fallbacks_total", route="m", why="unavailable") == 1


def prices(folder: Path, **input_per_mtok: str) -> Path:
    path = folder / "prices.yaml"
    listed = [
        {"model": model, "input_per_mtok": price, "output_per_mtok": "0", "from": "2000-01-01"}
        for model, price in input_per_mtok.items()
    ]
    path.write_text(yaml.safe_dump({"currency": "USD", "prices": listed}))
    return path


async def test_a_model_without_endpoints_or_with_dead_ones_is_stood_in_for(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    routes = [{"name": "m", "fallbacks": ["n"]}, {"name": "gone", "fallbacks": ["n"]}]
    async with scripted_engine(answers("n"), model="n") as two:
        async with scripted_engine(answers("m")) as one:
            gateway = await start(start_gateway, one.url, two.url, model_routes=routes)
            never_there = await ask(client, gateway, "gone")
        async with asyncio.timeout(30):
            while gateway.metric("prefixgate_endpoint_healthy", endpoint="e0"):
                await asyncio.sleep(0.05)
        dead = await ask(client, gateway, "m")
    assert [one.headers["x-prefixgate-model"] for one in (never_there, dead)] == ["n", "n"]
    assert [row["route_rule"] for row in rows(gateway) if row["state"] == "complete"] == ["fallback:1"] * 2


@pytest.mark.parametrize(
    ("key", "headers"),
    [({"scopes": {"fallbacks": False}}, {}), ({}, {"x-prefixgate-fallbacks": "never"})],
)
async def test_a_key_or_a_request_can_refuse_other_models(
    start_gateway: StartGateway,
    client: httpx.AsyncClient,
    tmp_path: Path,
    key: dict[str, object],
    headers: dict[str, str],
) -> None:
    async with scripted_engine(answers("m", status=503)) as one, scripted_engine(answers("n"), model="n") as two:
        gateway = await start(
            start_gateway, one.url, two.url, model_routes=FALLBACK, keys_file=keys_file(tmp_path, key=key)
        )
        answer = await ask(client, gateway, "m", {**bearer(), **headers})
    assert (answer.status_code, two.bodies) == (503, [])
    assert answer.json()["model"] == "m", "as the engine said it"


async def test_a_prompt_that_is_too_long_goes_to_a_model_that_takes_it(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    too_long = answer_json({"error": {"message": "This model's maximum context length is 8 tokens", "code": 400}}, 400)
    other = answer_json({"error": {"message": "temperature must be positive", "code": 400}}, 400)
    async with scripted_engine(too_long, other) as one, scripted_engine(answers("n"), model="n") as two:
        gateway = await start(start_gateway, one.url, two.url, model_routes=[{"name": "m", "fallbacks": ["n"]}])
        told_by_engine = await ask(client, gateway, "m")
        refused = await ask(client, gateway, "m")
        known_here = await ask(client, gateway, "m", max_tokens=2040)
    assert [one.headers.get("x-prefixgate-model") for one in (told_by_engine, refused, known_here)] == ["n", None, "n"]
    assert refused.status_code == 400
    assert len(one.bodies) == 2, "forty tokens and 2,040 are known not to fit into 2,048"
    assert gateway.metric("prefixgate_model_fallbacks_total", why="too_long") == 2


async def test_where_nobody_can_stand_in_the_client_hears_of_the_model_that_it_asked_for(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async with (
        scripted_engine(answers("m", status=500)) as one,
        scripted_engine(answers("n", status=500), model="n") as two,
    ):
        gateway = await start(start_gateway, one.url, two.url, model_routes=[{"name": "m", "fallbacks": ["gone"]}])
        alone = await ask(client, gateway, "m")
        too_long = await ask(client, gateway, "m", max_tokens=4000)
    assert (alone.status_code, alone.json()["error"]["code"]) == (502, "upstream_failed")
    assert (too_long.status_code, too_long.json()["error"]["code"]) == (400, "context_length_exceeded")
    assert two.bodies == []


async def test_a_full_queue_sends_to_another_model_only_where_that_is_wanted(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    taps = Taps()
    async with scripted_engine(taps.keeps_alive) as one, scripted_engine(answers("n"), model="n") as two:
        gateway = await start(
            start_gateway,
            one.url,
            two.url,
            queue__max_running=1,
            queue__classes=[{"name": "default", "max_requests": 1}],
            model_routes=[
                {"name": "m", "fallbacks": ["n"]},
                {"name": "only", "model": "m", "fallbacks": ["n"], "fall_back_on": ["failed"]},
            ],
        )
        async with asyncio.TaskGroup() as group:
            first = [group.create_task(ask(client, gateway, "m")) for _ in range(2)]
            await taps.has(1)
            async with asyncio.timeout(30):
                while gateway.metric("prefixgate_queue_requests") < 1:
                    await asyncio.sleep(0.02)
            elsewhere, refused = await ask(client, gateway, "m"), await ask(client, gateway, "only")
            taps.answer(2)
        await settled(gateway, 3)
    assert elsewhere.headers["x-prefixgate-model"] == "n"
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "queue_full")
    assert [one.result().status_code for one in first] == [200, 200]
    assert gateway.metric("prefixgate_model_fallbacks_total", why="full") == 1


async def test_after_the_first_byte_no_other_model_answers(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async def breaks_off(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        event = chat_stream("Hi")[0]
        await peer.send(b"%x\r\n%s\r\n" % (len(event), event))

    async with scripted_engine(breaks_off) as one, scripted_engine(answers("n"), model="n") as two:
        gateway = await start(start_gateway, one.url, two.url, model_routes=FALLBACK)
        answer = await ask(client, gateway, "m", stream=True)
    assert "Hi" in answer.text
    assert two.bodies == []


async def test_the_hold_of_a_budget_is_that_of_the_model_that_answers(
    start_gateway: StartGateway, client: httpx.AsyncClient, tmp_path: Path
) -> None:
    """What the model asked for would cost is held, given back when it fails, and the other's is held and charged."""
    dear, cheap = {"output_per_mtok": CENT_PER_TOKEN}, {"output_per_mtok": "1"}
    listed = [
        {"model": model, "input_per_mtok": "0", "from": "2000-01-01", **price}
        for model, price in (("m", dear), ("n", cheap))
    ]
    path = tmp_path / "prices.yaml"
    path.write_text(yaml.safe_dump({"currency": "USD", "prices": listed}))
    async with scripted_engine(answers("m", status=503)) as one, scripted_engine(answers("n"), model="n") as two:
        gateway = await start(
            start_gateway,
            one.url,
            two.url,
            model_routes=[{"name": "m", "fallbacks": ["n"]}],
            prices_file=path,
            keys_file=keys_file(tmp_path, budgets=[{"amount": "0.05", "per": "day"}]),
        )
        within = [await ask(client, gateway, "m", bearer(TENANT_KEY), max_tokens=2) for _ in range(8)]
    assert [one.status_code for one in within] == [200] * 8, "the model that failed would cost two cents of five"


def stopped(health: dict[str, Any]) -> str:
    return str(health["degraded"].get("canary", ""))


async def test_a_canary_that_fails_is_stopped_and_an_operator_may_let_it_go_on(
    start_gateway: StartGateway, client: httpx.AsyncClient, token_file: Path
) -> None:
    arms = [{"model": "m", "name": "stable", "weight": 1}, {"model": "n", "name": "canary", "weight": 1}]
    canary = {"arm": "canary", "min_requests": 20, "most_errors": 0.2}
    route = {"name": "fast", "arms": arms, "canary": canary}
    async with scripted_engine(answers("m")) as one, scripted_engine(answers("n", status=500), model="n") as two:
        gateway = await start(start_gateway, one.url, two.url, model_routes=[route], admin_token_file=token_file)
        asked = [[{"role": "user", "content": f"conversation {at}"}] for at in range(100)]
        statuses = [(await ask(client, gateway, "fast", messages=said)).status_code for said in asked]
        health = (await client.get(f"{gateway.url}/health")).json()
        admin = {"authorization": "Bearer letmein"}
        (shown,) = (await client.get(f"{gateway.url}/admin/routes", headers=admin)).json()
        where = {"name": "fast", "arm": "canary", "stopped": "false"}
        resumed = await client.post(f"{gateway.url}/admin/routes", headers=admin, params=where)
        unknown = await client.post(f"{gateway.url}/admin/routes", headers=admin, params={**where, "arm": "x"})
        after = (await client.get(f"{gateway.url}/health")).json()
    assert statuses.count(500) == 20, "judged after every tenth, once both sides have had twenty"
    assert set(statuses[-20:]) == {200}
    assert "errors: 1.000 of its requests failed, 0.000 of the others" in stopped(health)
    assert shown["arms"][1]["stopped"].startswith("errors")
    assert shown["requests"] == {"split:canary": 20, "split:stable": 80}
    assert shown["canary"]["watched"]["failed"] == 20
    assert (resumed.status_code, unknown.status_code, stopped(after)) == (200, 404, "")
    assert gateway.metric("prefixgate_model_arm_stopped", arm="canary") == 0


async def test_without_names_the_admin_page_is_empty(
    start_gateway: StartGateway, client: httpx.AsyncClient, token_file: Path
) -> None:
    async with scripted_engine(answer_chat("Hi")) as engine:
        gateway = await start(start_gateway, engine.url, admin_token_file=token_file)
        admin = {"authorization": "Bearer letmein"}
        assert (await client.get(f"{gateway.url}/admin/routes", headers=admin)).json() == []
        where = {"name": "fast", "arm": "canary"}
        assert (await client.post(f"{gateway.url}/admin/routes", headers=admin, params=where)).status_code == 404
