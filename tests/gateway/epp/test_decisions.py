"""What is decided, refused and booked where a gateway in front has its own say: subsets, fallbacks, errors, keys."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from gateway.edge.auth import new_key
from tests.gateway.conftest import settled
from tests.gateway.epp.asking import CHAT, SAYS_HELLO, chat, last_row, nothing_stays_reserved, rows_now
from tests.gateway.epp.conftest import RunningPicker, SimulatedEngine, StartPicker, running_picker
from tests.gateway.epp.front import BUFFERED, DUPLEX, NONE, STREAMED, EngineAnswer, Front, Told, with_status


def error_of(told: Told) -> dict[str, Any]:
    assert told.immediate
    assert told.set["content-type"] == "application/json"
    found: dict[str, Any] = json.loads(told.body)["error"]
    return found


@pytest.mark.parametrize("mode", [DUPLEX, BUFFERED])
async def test_what_cannot_be_served_is_refused_as_the_proxy_would(picker: RunningPicker, mode: Any) -> None:
    async with Front(picker.address) as front:
        unknown = await front.ask(CHAT, chat("Hi?", model="nope"), request=mode)
        garbage = await front.ask(CHAT, b"{garbage", request=mode)
        nowhere = await front.ask("/v1/nothing", chat("Hi?"), request=mode, pieces=())
        message = await front.ask("/v1/messages", b'{"model": "nope", "max_tokens": 3, "messages": []}', request=mode)
    assert (unknown.status, error_of(unknown)["code"]) == (404, "model_not_found")
    assert (garbage.status, error_of(garbage)["code"]) == (400, "invalid_request")
    assert nowhere.status == 404
    assert (message.status, error_of(message)["type"]) == (404, "not_found_error")
    assert "x-request-id" in unknown.set


@pytest.mark.parametrize("page", ["/metrics", "/health", "/ready", "/admin/index", "/ui"])
async def test_the_operators_pages_are_not_for_those_who_come_through_envoy(picker: RunningPicker, page: str) -> None:
    async with Front(picker.address) as front:
        told = await front.ask(page, method="GET")
    assert (told.status, told.immediate) == (404, True)


async def test_nor_is_the_dashboard_wherever_it_is(start_picker: StartPicker, engines: list[SimulatedEngine]) -> None:
    picker = start_picker(engines[0].url, ui__path="/board/of/ours")
    async with Front(picker.address) as front:
        told = [await front.ask(page, method="GET") for page in ("/board/of/ours", "/board/of/ours/api/fleet")]
    assert [(one.status, error_of(one)["code"]) for one in told] == [(404, "not_found")] * 2


async def test_the_models_are_told_without_asking_an_engine(picker: RunningPicker) -> None:
    async with Front(picker.address) as front:
        told = await front.ask("/v1/models", method="GET")
    assert [model["id"] for model in json.loads(told.body)["data"]] == ["simulated"]


async def test_only_what_is_offered_is_chosen(picker: RunningPicker, engines: list[SimulatedEngine]) -> None:
    async with Front(picker.address) as front:
        for engine in (*engines, *engines):
            told = await front.ask(CHAT, chat("Hi?"), offered=[engine.address, "192.0.2.1:80"], answers=SAYS_HELLO)
            assert (told.destination, told.metadata) == (engine.address, engine.address)
        told = await front.ask(CHAT, chat("Hi?"), offered=f"192.0.2.1:80, {engines[0].address}", answers=SAYS_HELLO)
        assert told.destination == engines[0].address
        for offered in (["192.0.2.1:80"], []):
            told = await front.ask(CHAT, chat("Hi?"), offered=offered)
            assert (told.status, error_of(told)["code"]) == (503, "service_unavailable")


async def test_an_answer_of_a_fallback_is_booked_to_who_gave_it(engines: list[SimulatedEngine], tmp_path: Path) -> None:
    urls = [engine.url for engine in engines]
    with running_picker(tmp_path, *urls, epp__fallbacks=1) as picker:
        async with Front(picker.address) as front:
            first = await front.ask(CHAT, chat("Hi?"), answers=SAYS_HELLO)
            assert first.destination is not None
            chosen, other = first.destination.split(",")
            assert {chosen, other} == {engine.address for engine in engines}
            attributes = {"upstream.address": other}
            told = await front.ask(CHAT, chat("Hi?"), answers=SAYS_HELLO, attributes=attributes)
            unknown = await front.ask(CHAT, chat("Hi?"), answers=SAYS_HELLO, served="192.0.2.1:80")
        rows = await settled(picker.pages, 3)
        names = {engine.address: f"e{at}" for at, engine in enumerate(engines)}
        assert (told.status, unknown.status) == (200, 200)
        assert told.set["x-prefixgate-endpoint"] == names[other] == rows[1].endpoint_id
        assert [row.attempts for row in rows] == [1, 2, 1]
        assert picker.pages.metric("prefixgate_epp_served_elsewhere_total", by="fallback") == 1
        assert picker.pages.metric("prefixgate_epp_served_elsewhere_total", by="unknown") == 1
        await nothing_stays_reserved(picker)


@pytest.mark.parametrize("response", [DUPLEX, STREAMED, BUFFERED])
@pytest.mark.parametrize(
    ("details", "status", "code"),
    [
        ("upstream_reset_before_response_started{remote_connection_failure}", 502, "upstream_failed"),
        ("response_timeout", 504, "upstream_timeout"),
        ("no_healthy_upstream", 503, "overloaded"),
    ],
)
async def test_an_error_of_the_gateway_in_front_is_told_in_the_clients_dialect(
    picker: RunningPicker, response: Any, details: str, status: int, code: str
) -> None:
    before = rows_now(picker)
    own = EngineAnswer(503, [("content-type", "text/plain")], [b"upstream connect error"])
    attributes = {"response.code_details": details}
    async with Front(picker.address) as front:
        told = await front.ask(CHAT, chat("Hi?"), response=response, answers=own, attributes=attributes)
    assert told.status == status
    assert json.loads(told.body)["error"]["code"] == code
    assert (await last_row(picker, before)).state == "failed"


async def test_an_error_without_a_body_gets_one(picker: RunningPicker) -> None:
    own = EngineAnswer(503, [], [])
    attributes = {"response.code_details": "no_healthy_upstream"}
    async with Front(picker.address) as front:
        told = await front.ask(CHAT, chat("Hi?"), answers=own, attributes=attributes)
    assert (told.status, error_of(told)["code"]) == (503, "overloaded")


async def test_the_pages_port_serves_requests_too(picker: RunningPicker) -> None:
    before = rows_now(picker)
    answer = await asyncio.to_thread(picker.pages.http.post, CHAT, content=chat("Hi?"))
    assert answer.json()["usage"]["completion_tokens"] == 4
    assert (await last_row(picker, before)).state == "complete"


@pytest.mark.parametrize("status", [400, 429, 500, 503])
async def test_an_error_of_the_engine_is_the_answer(picker: RunningPicker, status: int) -> None:
    before = rows_now(picker)
    async with Front(picker.address) as front:
        answer = with_status(SAYS_HELLO, status)
        told = await front.ask(CHAT, chat("Hi?"), answers=answer, attributes={"response.code_details": "via_upstream"})
    assert (told.status, told.body) == (status, b"".join(answer.pieces))
    row = await last_row(picker, before)
    assert (row.state, row.attempts) == ("failed" if status >= 500 else "rejected", 1)


async def test_an_answer_that_is_not_shown_is_not_billed_and_everyone_is_told(
    engines: list[SimulatedEngine], tmp_path: Path
) -> None:
    with running_picker(tmp_path, *(engine.url for engine in engines)) as picker:
        async with Front(picker.address) as front:
            asked = [await front.ask(CHAT, chat(f"{n}?", stream=n > 1), response=NONE) for n in range(3)]
            message = b'{"model":"simulated","max_tokens":3,"messages":[]}'
            other = await front.ask("/v1/messages", message, response=NONE)
        rows = await settled(picker.pages, 4)
        assert {(row.state, row.prompt_tokens, row.output_tokens) for row in rows[:3]} == {("complete", None, None)}
        assert len({told.destination for told in asked}) == 1, "the prefix is known all the same"
        assert all(told.set["x-prefixgate-unbilled"] == "1" for told in asked)
        assert b"include_usage" not in asked[2].request_body
        assert other.status in (400, 503)
        assert "epp" in picker.pages.http.get("/health").json()["degraded"]
        assert picker.pages.metric("prefixgate_epp_unbilled_total") == 3
        assert picker.pages.metric("prefixgate_epp_streams_total", outcome="unseen") == 3
        await nothing_stays_reserved(picker)


async def test_what_would_not_be_billed_can_be_refused(engines: list[SimulatedEngine], tmp_path: Path) -> None:
    with running_picker(tmp_path, engines[0].url, epp__unseen_answers="refuse") as picker:
        async with Front(picker.address) as front:
            assert (await front.ask(CHAT, chat("Hi?"), response=NONE)).status == 503
            assert (await front.ask(CHAT, chat("Hi?"))).status == 200


async def test_keys_limits_and_salts_are_those_of_the_gateway(engines: list[SimulatedEngine], tmp_path: Path) -> None:
    (mine, digest), (other, others) = new_key(), new_key()
    keys = tmp_path / "keys.yaml"
    keys.write_text(
        f"tenants:\n  - {{id: acme, keys: [{{id: a, sha256: {digest}, limits: {{requests_per_minute: 1}}}}]}}\n"
        f"  - {{id: globex, keys: [{{id: g, sha256: {others}}}]}}\n"
    )
    with running_picker(tmp_path, engines[0].url, keys_file=keys, limits__max_body_bytes=100_000) as picker:
        async with Front(picker.address) as front:
            fields = [("authorization", f"Bearer {mine}"), ("cookie", "a=b"), ("x-trace", "1")]
            told = await front.ask(CHAT, chat("Hi?"), fields=fields)
            again = await front.ask(CHAT, chat("Hi?"), fields=fields)
            nobody = await front.ask(CHAT, chat("Hi?"), pieces=())
            huge = await front.ask(
                CHAT, chat("Hi? " * 50_000), pieces=(), fields=[("authorization", f"Bearer {other}")]
            )
        assert told.status == 200
        assert b'"cache_salt":"' in told.request_body
        assert {"authorization", "cookie"} <= set(told.request_removed)
        assert "x-trace" not in told.request_removed
        assert (again.status, error_of(again)["code"]) == (429, "rate_limit_exceeded")
        assert "retry-after" in again.set
        assert nobody.status == 401
        assert (huge.status, error_of(huge)["code"]) == (413, "body_too_large")
