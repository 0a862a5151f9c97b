"""Names that clients use for models, through a gateway: aliases, arms, and who stands in."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx

from gateway.checking import ask_backends
from gateway.commands.explain import headline
from gateway.config import load_config
from gateway.types import Route
from tests.gateway.conftest import RunningGateway, StartGateway, settled, start
from tests.gateway.limited import bearer, keys_file
from tests.gateway.scripted_engine import ScriptedEngine, answer_chat, answer_json, scripted_engine
from tests.hostile import Behaviour

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


async def test_what_continues_a_kept_response_stays_with_the_arm_that_has_it_and_falls_back_to_nobody(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    native = frozenset({Route.RESPONSES.value})
    kept = answer_json({"id": "resp_1", "object": "response", "status": "completed", "output": [], "usage": None})
    scripts = [*[kept] * 8, answer_json({}, 503)]
    async with (
        scripted_engine(*scripts, routes=native) as one,
        scripted_engine(*scripts, model="n", routes=native) as two,
    ):
        arms = [{"model": "m", "name": "a"}, {"model": "n", "name": "b"}]
        split = {"name": "fast", "sticky": "request", "arms": arms, "fallbacks": ["m", "n"]}
        gateway = await start(start_gateway, one.url, two.url, model_routes=[split])
        first = {"model": "fast", "input": "Hello"}
        answers = [await client.post(f"{gateway.url}/v1/responses", json=first)]
        for _ in range(8):
            more = {**first, "previous_response_id": "resp_1"}
            answers.append(await client.post(f"{gateway.url}/v1/responses", json=more))
    assert [answer.status_code for answer in answers] == [200] * 8 + [503]
    assert len({answer.headers["x-prefixgate-route-rule"] for answer in answers}) == 1
    assert sorted(map(len, (one.bodies, two.bodies))) == [0, 9]


async def test_a_request_that_is_fixed_on_its_way_keeps_its_model_and_the_rule_goes_by_its_name(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    tools = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in ("zoo", "ape")]
    async with scripted_engine(answers("m")) as engine:
        gateway = await start(
            start_gateway,
            engine.url,
            model_routes=[{"name": "fast", "model": "m"}],
            fixes=[{"mode": "consented", "fixes": ["tools"], "models": ["fast"]}],
        )
        fixed, other = [await ask(client, gateway, model, tools=tools) for model in ("fast", "m")]
    assert fixed.headers["x-prefixgate-fixes"] == "tools"
    assert "x-prefixgate-fixes" not in other.headers
    assert models_at(engine) == ["m", "m"]
    assert [row["model_asked"] for row in rows(gateway)] == ["fast", None]


async def test_check_says_which_names_lead_nowhere(
    client: httpx.AsyncClient,
) -> None:
    routes = [
        {"name": "fast", "model": "m", "fallbacks": ["m", "away"]},
        {
            "name": "split",
            "arms": [{"model": "m", "name": "a", "endpoints": ["pod-*"]}, {"model": "gone", "name": "b"}],
        },
    ]
    async with scripted_engine(answers("m")) as engine:
        config = load_config(None, {}, {"backends": [{"url": engine.url}], "model_routes": routes})
        _, _, said = await ask_backends(config, {}, None)
    assert said == [
        "model_routes: fast: fallback away: no backend serves it",
        "model_routes: split: arm a: none of its endpoints serves the model m",
        "model_routes: split: arm b: no backend serves the model gone",
    ]


async def test_why_a_request_went_where_it_went_names_the_rule(
    start_gateway: StartGateway, client: httpx.AsyncClient, token_file: Path
) -> None:
    async with scripted_engine(answers("m")) as engine:
        routes = [{"name": "fast", "model": "m"}]
        gateway = await start(start_gateway, engine.url, model_routes=routes, admin_token_file=token_file)
        answer = await ask(client, gateway, "fast")
        await settled(gateway, 1)
        page = f"{gateway.url}/admin/requests/{answer.headers['x-request-id']}"
        found = (await client.get(page, headers={"authorization": "Bearer letmein"})).json()
    assert (found["model"], found["model_asked"], found["route_rule"]) == ("m", "fast", "alias")
    assert "asked for as fast: alias" in list(headline(found))


async def test_a_key_for_some_endpoints_gets_the_arm_that_has_one_of_them(
    start_gateway: StartGateway, client: httpx.AsyncClient, tmp_path: Path
) -> None:
    split = {"name": "fast", "sticky": "request", "arms": [{"model": "m", "name": "a"}, {"model": "n", "name": "b"}]}
    keys = keys_file(tmp_path, key={"scopes": {"endpoints": ["e0"]}})
    async with scripted_engine(answers("m")) as one, scripted_engine(answers("n"), model="n") as two:
        gateway = await start(start_gateway, one.url, two.url, model_routes=[split], keys_file=keys)
        found = [await ask(client, gateway, "fast", bearer()) for _ in range(12)]
    assert {(answer.status_code, answer.headers["x-prefixgate-route-rule"]) for answer in found} == {(200, "split:a")}


async def test_an_arm_that_only_computes_prompts_for_others_is_passed_over(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    arms = [{"model": "m", "name": "prefills", "endpoints": ["e0"]}, {"model": "m", "name": "answers"}]
    async with scripted_engine(answers("m")) as one, scripted_engine(answers("m")) as two:
        backends = [{"id": "e0", "url": one.url, "role": "prefill"}, {"id": "e1", "url": two.url}]
        routes = [{"name": "m", "sticky": "request", "arms": arms}]
        gateway = await start(start_gateway, model_routes=routes, backends=backends)
        found = [await ask(client, gateway, "m") for _ in range(12)]
    assert {(one.status_code, one.headers["x-prefixgate-route-rule"]) for one in found} == {(200, "split:answers")}


async def test_who_names_no_model_is_led_as_who_names_the_only_one(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    arms = [
        {"model": "m", "name": "old", "endpoints": ["e0"], "weight": 0},
        {"model": "m", "name": "new", "endpoints": ["e1"]},
    ]
    async with scripted_engine(answers("m")) as one, scripted_engine(answers("m")) as two:
        gateway = await start(start_gateway, one.url, two.url, model_routes=[{"name": "m", "arms": arms}])
        found = [
            await client.post(f"{gateway.url}/v1/chat/completions", json={"messages": HELLO, **named})
            for named in ({}, {"model": None}, {"model": ""})
        ]
    assert {(one.status_code, one.headers["x-prefixgate-route-rule"]) for one in found} == {(200, "split:new")}


async def test_a_response_that_another_model_keeps_is_continued_there(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    native = frozenset({Route.RESPONSES.value})
    kept = answer_json({"id": "resp_1", "object": "response", "status": "completed", "output": [], "usage": None})
    fails_once = answer_json({}, 503), kept
    async with (
        scripted_engine(*fails_once, routes=native) as one,
        scripted_engine(kept, model="n", routes=native) as two,
    ):
        routes = [{"name": "m", "fallbacks": ["away", "n"]}]
        gateway = await start(start_gateway, one.url, two.url, model_routes=routes)
        first, more = [
            await client.post(f"{gateway.url}/v1/responses", json={"model": "m", "input": "Hello", **continues})
            for continues in ({}, {"previous_response_id": "resp_1"})
        ]
        await settled(gateway, 3)
    assert (first.status_code, more.status_code) == (200, 200)
    assert first.headers["x-prefixgate-route-rule"] == more.headers["x-prefixgate-route-rule"] == "fallback:2"
    assert models_at(two) == ["n", "n"]
    assert [(row["model"], row["model_asked"]) for row in rows(gateway)][2:] == [("n", "m")]
