"""Endpoints that fail, hang, stand still or do worse than their peers, on real ports: who is found, who is left, who is
tried again, and what is said of it. Engines answer from a script; the gateway is a whole one.

Times are short here, and only lower bounds are held against a clock: a machine that is busy changes nothing.
"""

import asyncio
from contextlib import suppress
from typing import Any, Final

import httpx
import pytest

from tests.gateway.conftest import RunningGateway, StartGateway, start
from tests.gateway.scripted_engine import (
    METRICS,
    ScriptedEngine,
    answer_chat,
    answer_json,
    chat_stream,
    delta,
    scripted_engine,
)
from tests.hostile import Behaviour, Peer, hang, reset_before_first_byte, stream
from tests.until import until

CHAT: Final[dict[str, Any]] = {"model": "m", "messages": [{"role": "user", "content": "Where are the books?"}]}
IN_TIME_S: Final = 20.0
QUICK: Final[dict[str, object]] = {
    "scheduling__policy": "round_robin",
    "poll_interval_s": 0.05,
    "health__first_byte_least_s": 0.4,
    "health__left_s": 0.2,
    "health__stall_s": 0.2,
    "health__open_s": 60.0,
}
"""Patience of tenths of a second; a breaker that has opened stays so."""
WARM: Final = 16
"""Requests after which the speeds of two endpoints are known."""


async def ask(client: httpx.AsyncClient, gateway: RunningGateway, **more: object) -> httpx.Response:
    return await client.post(f"{gateway.url}/v1/chat/completions", json=CHAT | more)


async def asked_by(client: httpx.AsyncClient, gateway: RunningGateway, **more: object) -> str:
    """Who answered."""
    answer = await ask(client, gateway, **more)
    assert answer.status_code == 200, answer.text
    return answer.headers["x-prefixgate-endpoint"]


async def standing(client: httpx.AsyncClient, gateway: RunningGateway, endpoint: str = "e0") -> dict[str, Any]:
    health = (await client.get(f"{gateway.url}/health")).json()
    found: dict[str, Any] = health["endpoints"][endpoint]["standing"]
    return found


async def until_in_state(
    client: httpx.AsyncClient, gateway: RunningGateway, state: str, endpoint: str = "e0"
) -> dict[str, Any]:
    """Wait until an endpoint is in a state."""
    return await until(
        lambda: standing(client, gateway, endpoint), lambda found: found["state"] == state, within_s=IN_TIME_S
    )


def told(*words: str) -> Behaviour:
    """A streamed answer."""
    return stream(*chat_stream(*words))


async def learned(client: httpx.AsyncClient, gateway: RunningGateway) -> None:
    """Let the gateway see how fast its endpoints are."""
    for _ in range(WARM):
        await ask(client, gateway, stream=True)


def page(*, waiting: int = 0, running: int = 0, steps: int = 0) -> bytes:
    """A metrics page of an engine."""
    text = METRICS.replace(
        b'running{engine="0",model_name="m"} 0.0', b'running{engine="0",model_name="m"} %d' % running
    )
    text = text.replace(b'waiting{engine="0",model_name="m"} 0.0', b'waiting{engine="0",model_name="m"} %d' % waiting)
    return text + b'vllm:generation_tokens_total{engine="0",model_name="m"} %d\n' % steps


async def test_a_frozen_endpoint_is_left_before_its_first_byte_though_its_deadline_is_ten_minutes(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async with scripted_engine(*[told("Hi")] * (WARM // 2), hang) as freezes, scripted_engine(told("Hi")) as good:
        gateway = await start(start_gateway, freezes.url, good.url, **QUICK)
        await learned(client, gateway)
        async with asyncio.timeout(IN_TIME_S):
            answers = [await asked_by(client, gateway, stream=True) for _ in range(4)]
        assert set(answers) == {"e1"}
        assert gateway.metric("prefixgate_first_byte_given_up_total", endpoint="e0") >= 1
        assert gateway.metric("prefixgate_endpoint_faults_total", endpoint="e0", kind="no_first_byte") >= 1


async def test_a_merely_long_prefill_is_waited_for_while_the_engines_page_moves(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    engines: list[ScriptedEngine] = []

    async def computes(peer: Peer) -> None:
        await peer.read_request()
        for step in range(110):  # 2.2 s, twice as long as silence is borne
            engines[0].metrics = page(running=1, steps=step)
            await asyncio.sleep(0.02)
        for piece in chat_stream("Hi"):
            await peer.send(piece)

    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"

    async def computes_long(peer: Peer) -> None:
        await peer.send(head)
        await computes(peer)

    async with (
        scripted_engine(*[told("Hi")] * (WARM // 2), computes_long) as slow,
        scripted_engine(told("Hi")) as other,
    ):
        engines.append(slow)
        gateway = await start(start_gateway, slow.url, other.url, **QUICK | {"health__first_byte_least_s": 1.0})
        await learned(client, gateway)
        async with asyncio.timeout(IN_TIME_S):
            answers = await asyncio.gather(*(asked_by(client, gateway, stream=True) for _ in range(2)))
        assert sorted(answers) == ["e0", "e1"]
        assert gateway.metric("prefixgate_first_byte_given_up_total") == 0
        assert (await standing(client, gateway))["breaker_opened"] == 0


async def test_where_there_is_nobody_else_a_silent_endpoint_is_waited_for(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async def is_late(peer: Peer) -> None:
        await asyncio.sleep(1.2)
        await told("Hi")(peer)

    async with scripted_engine(*[told("Hi")] * WARM, is_late) as engine:
        gateway = await start(start_gateway, engine.url, **QUICK)
        await learned(client, gateway)
        assert await asked_by(client, gateway, stream=True) == "e0"
        assert gateway.metric("prefixgate_first_byte_given_up_total") == 0


async def leave_unanswered(client: httpx.AsyncClient, gateway: RunningGateway, after_s: float) -> None:
    """A client that is not patient."""
    with suppress(httpx.TimeoutException):
        await client.post(f"{gateway.url}/v1/chat/completions", json=CHAT | {"stream": True}, timeout=after_s)


async def test_a_hung_engine_whose_clients_give_up_early_is_found_by_that(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    """All clients are less patient than the gateway."""
    async with scripted_engine(*[told("Hi")] * (WARM // 2), hang) as hangs, scripted_engine(told("Hi")) as good:
        patient = {"health__first_byte_least_s": 600.0, "health__stall_s": 0}
        gateway = await start(start_gateway, hangs.url, good.url, **QUICK | patient)
        await learned(client, gateway)
        async with asyncio.timeout(IN_TIME_S):
            while (await standing(client, gateway))["state"] == "up":
                await asyncio.gather(*(leave_unanswered(client, gateway, 0.6) for _ in range(4)))
        found = await standing(client, gateway)
        assert (found["state"], found["why"]) == ("open", "left unanswered, 3 times in a row")
        assert {await asked_by(client, gateway, stream=True) for _ in range(4)} == {"e1"}


async def test_clients_that_leave_a_working_engine_are_never_held_against_it(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    """Dozens leave before their first byte, at once or after a wait, while another one is given token after token."""
    over = asyncio.Event()

    async def talks(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
        while not over.is_set():
            await peer.send(delta("word "))
            await asyncio.sleep(0.02)
        for piece in chat_stream("."):
            await peer.send(piece)

    async with scripted_engine(*[told("Hi")] * WARM, talks, hang) as engine:
        gateway = await start(start_gateway, engine.url, **QUICK | {"health__first_byte_least_s": 600.0})
        await learned(client, gateway)
        talking = asyncio.ensure_future(ask(client, gateway, stream=True))
        await until(lambda: len(engine.requests) > WARM, within_s=IN_TIME_S)
        for after_s in (0.05, 0.8):
            await asyncio.gather(*(leave_unanswered(client, gateway, after_s) for _ in range(40)))
        over.set()
        assert (await talking).status_code == 200
        found = await standing(client, gateway)
        assert (
            found["breaker_opened"],
            gateway.metric("prefixgate_endpoint_faults_total", kind="left_unanswered"),
        ) == (0, 0)


async def test_an_engine_in_which_requests_wait_and_nothing_moves_is_stalled_whatever_its_health_says(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async with scripted_engine(told("Hi")) as wedges, scripted_engine(told("Hi")) as good:
        gateway = await start(start_gateway, wedges.url, good.url, **QUICK | {"health__open_s": 0.3})
        await learned(client, gateway)
        wedges.metrics = page(waiting=3, running=8, steps=70)
        found = await until_in_state(client, gateway, "stalled")
        assert found["why"].startswith("requests wait, and no counter of its metrics page has moved")
        assert found["since"].endswith("+00:00")
        health = (await client.get(f"{gateway.url}/health")).json()
        assert "stalled: e0" in health["degraded"]["endpoints"] or "half open: e0" in health["degraded"]["endpoints"]
        assert health["endpoints"]["e0"]["healthy"]
        assert gateway.metric("prefixgate_endpoint_set_aside_total", endpoint="e0", why="stalled") >= 1
        await until_in_state(client, gateway, "stalled")
        assert await asked_by(client, gateway, stream=True) == "e1"
        for step in range(71, 400):  # it moves again
            wedges.metrics = page(waiting=3, running=8, steps=step)
            if (await standing(client, gateway))["state"] == "up":
                break
            await asyncio.sleep(0.03)
        else:
            pytest.fail("it was not taken back")
        assert {await asked_by(client, gateway, stream=True) for _ in range(4)} == {"e0", "e1"}


async def test_where_all_are_stalled_requests_are_served_all_the_same(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    """What a page says may be wrong: a request that nobody else can take is sent."""
    async with scripted_engine(told("Hi")) as engine:
        engine.metrics = page(waiting=3, running=8, steps=70)
        gateway = await start(start_gateway, engine.url, **QUICK)
        await until_in_state(client, gateway, "stalled")
        assert await asked_by(client, gateway, stream=True) == "e0"


async def test_an_endpoint_that_fails_with_5xx_where_others_do_not_opens_its_breaker(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async with scripted_engine(answer_json({"error": {}}, 500)) as fails, scripted_engine(answer_chat("Hi")) as good:
        gateway = await start(start_gateway, fails.url, good.url, **QUICK)
        assert {await asked_by(client, gateway) for _ in range(8)} == {"e1"}
        found = await standing(client, gateway)
        assert (found["state"], found["why"]) == ("open", "status 5xx, 3 times in a row")
        assert len(fails.requests) == 3
        assert gateway.metric("prefixgate_endpoint_state", endpoint="e0", state="open") == 1
        assert gateway.metric("prefixgate_endpoint_state", endpoint="e0", state="up") == 0
        assert gateway.metric("prefixgate_breaker_opened_total", endpoint="e0") == 1


async def test_a_request_that_makes_every_endpoint_fail_is_nobodys_fault(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async with (
        scripted_engine(answer_json({"error": {}}, 500)) as one,
        scripted_engine(answer_json({"error": {}}, 500)) as other,
    ):
        gateway = await start(start_gateway, one.url, other.url, **QUICK)
        for _ in range(10):
            assert (await ask(client, gateway)).status_code == 500
        assert [(await standing(client, gateway, name))["state"] for name in ("e0", "e1")] == ["up", "up"]


async def test_an_endpoint_that_breaks_off_its_answers_opens_its_breaker(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    async def breaks_off(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 999\r\n\r\n{")
        peer.reset()

    async with scripted_engine(breaks_off) as breaks, scripted_engine(answer_chat("Hi")) as good:
        gateway = await start(start_gateway, breaks.url, good.url, **QUICK)
        for _ in range(8):
            with suppress(httpx.HTTPError):
                await ask(client, gateway)
        assert (await until_in_state(client, gateway, "open"))["why"] == "broken off, 3 times in a row"


async def test_half_open_an_endpoint_gets_no_more_than_its_probes_at_a_time(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    at_once: list[int] = []
    inside = {"now": 0}
    go_on = asyncio.Event()

    async def counts(peer: Peer) -> None:
        inside["now"] += 1
        at_once.append(inside["now"])
        try:
            await asyncio.wait_for(go_on.wait(), IN_TIME_S)
            await answer_chat("Hi")(peer)
        finally:
            inside["now"] -= 1

    async with (
        scripted_engine(reset_before_first_byte) as engine,
        scripted_engine(answer_chat("Hi")) as good,
    ):
        opens = {"health__open_s": 0.2, "health__probes": 2, "health__stall_s": 0}
        gateway = await start(start_gateway, engine.url, good.url, **QUICK | opens)
        while (await standing(client, gateway))["breaker_opened"] == 0:
            await asked_by(client, gateway)
        engine.scripts[:] = [counts]
        await until_in_state(client, gateway, "half_open")
        under_way = [asyncio.ensure_future(asked_by(client, gateway)) for _ in range(20)]
        await until(lambda: sum(one.done() for one in under_way) >= 18, within_s=IN_TIME_S)
        assert max(at_once) == 2
        go_on.set()
        assert sorted(await asyncio.gather(*under_way)) == ["e0"] * 2 + ["e1"] * 18
        assert (await standing(client, gateway))["state"] == "up"


async def test_an_endpoint_that_fails_far_more_than_its_peers_is_left_out_for_a_while_and_comes_back(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    """Every other request: never three in a row, so no breaker opens."""
    flaky: list[Behaviour] = [answer_json({"error": {}}, 503), answer_chat("Hi")] * 40
    async with (
        scripted_engine(*flaky, answer_chat("Hi")) as bad,
        scripted_engine(answer_chat("Hi")) as second,
        scripted_engine(answer_chat("Hi")) as third,
    ):
        judged = {"outliers__interval_s": 0.1, "outliers__eject_s": 0.4, "outliers__return_s": 0}
        urls = (bad.url, second.url, third.url)
        gateway = await start(start_gateway, *urls, **QUICK | judged)
        found: dict[str, Any] = {}
        async with asyncio.timeout(IN_TIME_S):
            while found.get("state") != "ejected":
                assert (await ask(client, gateway)).status_code == 200
                found = await standing(client, gateway)
        assert found["why"].startswith("it fails ")
        assert found["breaker_opened"] == 0
        assert gateway.metric("prefixgate_endpoint_set_aside_total", endpoint="e0", why="fails") == 1
        bad.scripts[:] = [answer_chat("Hi")]
        await until_in_state(client, gateway, "up")
        assert {await asked_by(client, gateway) for _ in range(6)} == {"e0", "e1", "e2"}


async def test_admin_endpoints_say_how_each_stands(
    start_gateway: StartGateway, client: httpx.AsyncClient, token_file: object
) -> None:
    async with scripted_engine(answer_json({"error": {}}, 503)) as fails, scripted_engine(answer_chat("Hi")) as good:
        gateway = await start(start_gateway, fails.url, good.url, admin_token_file=token_file, **QUICK)
        while (await standing(client, gateway))["state"] == "up":
            await asked_by(client, gateway)
        rows = await client.get(f"{gateway.url}/admin/endpoints", headers={"authorization": "Bearer letmein"})
        assert [row["standing"]["state"] for row in rows.json()] == ["open", "up"]
        assert rows.json()[0]["standing"]["why"] == "status 5xx, 3 times in a row"


async def test_health_flap_keeps_load_speed_breaker_and_index(
    start_gateway: StartGateway, client: httpx.AsyncClient
) -> None:
    """A health check that fails for a moment is no restart: what is known of the endpoint stays (a restart empties its
    cache, and is another matter)."""
    go_on = asyncio.Event()

    async def waits(peer: Peer) -> None:
        await asyncio.wait_for(go_on.wait(), IN_TIME_S)
        await answer_chat("Hi")(peer)

    scripts = [*[told("Hi")] * WARM, *[reset_before_first_byte] * 6, waits, told("Hi")]
    async with scripted_engine(*scripts) as engine:
        quick = {"health__open_s": 0.1, "health__stall_s": 0}
        gateway = await start(start_gateway, engine.url, **QUICK | quick)
        await learned(client, gateway)
        while (await standing(client, gateway))["breaker_opened"] == 0:
            await ask(client, gateway)
        async with asyncio.timeout(IN_TIME_S):
            waiting = asyncio.ensure_future(ask(client, gateway))
            while len(engine.requests) < len(scripts) - 1:
                if waiting.done():
                    waiting = asyncio.ensure_future(ask(client, gateway))
                await asyncio.sleep(0.01)
        before = (await client.get(f"{gateway.url}/health")).json()["endpoints"]["e0"]
        speed = gateway.metric("prefixgate_perf_base_seconds", endpoint="e0")
        engine.unwell = True
        await until_in_state(client, gateway, "down")
        engine.unwell = False
        await until(lambda: standing(client, gateway), lambda found: found["state"] != "down", within_s=IN_TIME_S)
        after = (await client.get(f"{gateway.url}/health")).json()["endpoints"]["e0"]
        assert (before["in_flight_requests"], after["in_flight_requests"]) == (1, 1)
        assert after["generation"] == before["generation"]
        assert after["standing"]["breaker_opened"] == before["standing"]["breaker_opened"] >= 1
        assert gateway.metric("prefixgate_perf_base_seconds", endpoint="e0") == speed
        go_on.set()
        assert (await waiting).status_code == 200
        answer = await ask(client, gateway, stream=True)
        assert int(answer.headers["x-prefixgate-cached-tokens"]) == 32
