"""Who answers where a model cannot: never in silence, and at the price of who does."""

import asyncio
import re
from pathlib import Path

import httpx
import pytest
import yaml

from tests.gateway.conftest import StartGateway, settled, start
from tests.gateway.limited import CENT_PER_TOKEN, bearer, keys_file
from tests.gateway.limited import KEY as TENANT_KEY
from tests.gateway.model_routes.test_routes import answers, ask, models_at, rows
from tests.gateway.scripted_engine import answer_json, chat_stream, scripted_engine
from tests.gateway.taps import Taps
from tests.gateway.test_endpoint_health import IN_TIME_S, QUICK, WARM, learned
from tests.hostile import Peer, hang, stream
from tests.until import until

STANDS_IN = {"name": "m", "fallbacks": ["n"]}
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
        await until(lambda: not gateway.metric("prefixgate_endpoint_healthy", endpoint="e0"))
        dead = await ask(client, gateway, "m")
    assert [one.headers["x-prefixgate-model"] for one in (never_there, dead)] == ["n", "n"]
    assert [row["route_rule"] for row in rows(gateway) if row["state"] == "complete"] == ["fallback:1"] * 2


@pytest.mark.parametrize(
    ("key", "headers"),
    [({"scopes": {"fallbacks": False}}, {}), ({}, {"x-prefixgate-fallbacks": "Never"})],
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
            await until(lambda: gateway.metric("prefixgate_queue_requests") >= 1)
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


async def test_a_tenant_of_one_request_at_a_time_may_be_answered_by_another_model(
    start_gateway: StartGateway, client: httpx.AsyncClient, tmp_path: Path
) -> None:
    keys = keys_file(tmp_path, limits={"concurrent": 1})
    async with scripted_engine(answers("m", status=503)) as one, scripted_engine(answers("n"), model="n") as two:
        gateway = await start(start_gateway, one.url, two.url, model_routes=[STANDS_IN], keys_file=keys)
        found = [await ask(client, gateway, "m", bearer(TENANT_KEY)) for _ in range(6)]
    assert [answer.status_code for answer in found] == [200] * 6, "the failed try is over before the next begins"


async def test_what_is_refused_is_refused_by_the_model_that_was_asked_for(
    start_gateway: StartGateway, client: httpx.AsyncClient, tmp_path: Path
) -> None:
    """A second try that a limit refuses is no answer: the client hears why the first had none."""
    keys = keys_file(tmp_path, limits={"requests_per_minute": 1})
    async with scripted_engine(answers("m", status=503)) as one, scripted_engine(answers("n"), model="n") as two:
        gateway = await start(start_gateway, one.url, two.url, model_routes=[STANDS_IN], keys_file=keys)
        failed = await ask(client, gateway, "m", bearer(TENANT_KEY))
        refused = await ask(client, gateway, "m", bearer(TENANT_KEY))
    assert (failed.status_code, failed.json()["error"]["code"]) == (502, "upstream_failed")
    assert (refused.status_code, refused.json()["error"]["code"]) == (429, "rate_limit_exceeded")
    assert two.bodies == []


async def test_a_model_that_stays_silent_is_stood_in_for_and_so_is_an_arm_whose_endpoints_are_elsewhere(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async def says_nothing(peer: Peer) -> None:
        await peer.read_request()
        await peer.hang()

    async with scripted_engine(says_nothing) as one, scripted_engine(answers("n"), model="n") as two:
        arm = {"model": "m", "endpoints": ["pod-*"]}
        routes = [STANDS_IN, {"name": "pods", "arms": [arm], "fallbacks": ["n"]}]
        gateway = await start(start_gateway, one.url, two.url, model_routes=routes, limits__first_byte_s=0.2)
        silent, elsewhere = await ask(client, gateway, "m"), await ask(client, gateway, "pods")
    assert [answer.headers["x-prefixgate-model"] for answer in (silent, elsewhere)] == ["n", "n"]
    why = {
        name: gateway.metric("prefixgate_model_fallbacks_total", why=name) for name in ("slow", "unavailable", "failed")
    }
    assert why == {"slow": 1, "unavailable": 1, "failed": 0}


async def test_the_time_that_the_first_model_took_is_told_as_such(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async def says_nothing(peer: Peer) -> None:
        await peer.read_request()
        await peer.hang()

    async with scripted_engine(says_nothing) as one, scripted_engine(answers("n"), model="n") as two:
        gateway = await start(
            start_gateway, one.url, two.url, model_routes=[STANDS_IN], limits__first_byte_s=0.5, timing__header="always"
        )
        answer = await ask(client, gateway, "m")
        await settled(gateway, 2)
    steps = dict(re.findall(r"(\w+);dur=([\d.]+)", answer.headers["x-prefixgate-timing"]))
    assert float(steps.pop("fallback")) >= 500
    assert sum(map(float, steps.values())) < 500
    assert gateway.metric("prefixgate_decision_seconds_sum") < 0.5


async def test_a_model_whose_only_endpoint_freezes_is_left_as_soon_as_an_endpoint_among_others(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    silent_after = [stream(*chat_stream("Hi"))] * WARM
    async with (
        scripted_engine(*silent_after, hang) as freezes,
        scripted_engine(stream(*chat_stream("Hi")), model="n") as other,
    ):
        gateway = await start(start_gateway, freezes.url, other.url, **QUICK, model_routes=[STANDS_IN])
        await learned(client, gateway)
        async with asyncio.timeout(IN_TIME_S):
            answer = await ask(client, gateway, "m", stream=True)
        await settled(gateway, WARM + 2)
    assert answer.headers["x-prefixgate-route-rule"] == "fallback:1"
    assert gateway.metric("prefixgate_model_fallbacks_total", why="slow") == 1
