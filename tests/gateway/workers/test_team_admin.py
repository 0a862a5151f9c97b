"""The admin API of several workers: who answers what, and how their pages become one."""

import socket
from typing import Any

import httpx
import pytest

from gateway.team.inner_calls import MOST_BODY_BYTES
from gateway.team.member import Team
from gateway.team.messages import Call, Crew, Question, Reply, Terms
from gateway.team_admin import SHARING, TeamAdmin
from gateway.team_pages import MOST_DIFFERENCES, disaggregation_page, endpoints_page, index_page, parity_page
from gateway.wire import Receive, Scope, Send
from tests.repo.test_docs import admin_openapi


def test_every_page_of_the_admin_api_says_who_answers_it() -> None:
    paths = {(method.upper(), path) for path, methods in admin_openapi()["paths"].items() for method in methods}
    assert {("POST", "/admin/endpoints/{endpoint_id}/drain"), ("GET", "/admin/index")} <= paths
    assert paths - set(SHARING) == set()


class OtherWorkers(Team):
    """A team whose other workers answer as they are told."""

    def __init__(self, replies: list[Reply], alive: int = 3) -> None:
        line = socket.socket()
        line.close()
        super().__init__(line, line, Terms(b"", 0, 1, None), stop=lambda: None)
        self.crew = Crew(alive, alive)
        self.replies = replies
        self.asked: list[Call] = []
        self.noted: list[tuple[str, bool]] = []

    async def ask(self, question: Question) -> list[Reply]:
        assert isinstance(question, Call)
        self.asked.append(question)
        return self.replies

    def drained(self, endpoint_id: str, *, draining: bool) -> None:
        self.noted.append((endpoint_id, draining))


def page(status: int, body: bytes) -> Reply:
    return Reply(status, b"application/json", body)


async def asked(team: Team, own: Reply, path: str, method: str = "GET", body: bytes = b"") -> httpx.Response:
    async def app(_: Scope, receive: Receive, send: Send) -> None:
        assert (await receive())["type"] == "http.request"
        headers = [(b"content-type", own.content_type)]
        await send({"type": "http.response.start", "status": own.status, "headers": headers})
        await send({"type": "http.response.body", "body": own.body})

    transport: Any = httpx.ASGITransport(app=TeamAdmin(app, team))
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
        return await client.request(method, path, headers={"authorization": "Bearer t"}, content=body)


NOT_HERE = page(404, b'{"detail": "no such request"}')


async def test_a_request_that_another_worker_decided_on_is_found() -> None:
    team = OtherWorkers([NOT_HERE, page(200, b'{"request_id": "r1"}')])
    answer = await asked(team, NOT_HERE, "/admin/requests/r1?x=1")
    assert (answer.status_code, answer.json()) == (200, {"request_id": "r1"})
    (call,) = team.asked
    assert (call.method, call.path, call.query) == ("GET", "/admin/requests/r1", b"x=1")
    assert (b"authorization", b"Bearer t") in call.headers


async def test_a_request_that_nobody_knows_is_not_found() -> None:
    answer = await asked(OtherWorkers([NOT_HERE, NOT_HERE]), NOT_HERE, "/admin/requests/r1")
    assert (answer.status_code, answer.json()) == (404, {"detail": "no such request"})


@pytest.mark.parametrize(
    ("status", "path"), [(401, "/admin/requests/r1"), (401, "/admin/parity"), (200, "/admin/prices")]
)
async def test_others_are_not_asked_what_is_refused_or_known_to_all(status: int, path: str) -> None:
    team = OtherWorkers([])
    assert (await asked(team, page(status, b"{}"), path)).status_code == status
    assert team.asked == []


async def test_a_drain_reaches_all_and_is_kept_for_those_to_come(caplog: pytest.LogCaptureFixture) -> None:
    drained = page(200, b'{"id": "a", "draining": true}')
    team = OtherWorkers([drained, drained])
    answer = await asked(team, drained, "/admin/endpoints/a/drain?draining=true", "POST")
    assert answer.json() == {"id": "a", "draining": True}
    assert team.noted == [("a", True)]
    assert len(team.asked) == 1
    assert "not all workers" not in caplog.text


async def test_what_is_put_reaches_all_with_its_body_up_to_a_length() -> None:
    team = OtherWorkers([page(200, b"{}"), page(200, b"{}")])
    path = "/admin/templates/a@1"
    assert (await asked(team, page(200, b"{}"), path, "PUT", b"text: x")).status_code == 200
    assert [call.body for call in team.asked] == [b"text: x"]
    assert (await asked(team, page(200, b"{}"), path, "PUT", b"x" * (MOST_BODY_BYTES + 1))).status_code == 413
    assert len(team.asked) == 1


async def test_that_not_all_workers_heard_of_a_change_is_said(caplog: pytest.LogCaptureFixture) -> None:
    await asked(OtherWorkers([page(200, b"{}")]), page(200, b"{}"), "/admin/index/clear?endpoint=a", "POST")
    assert "not all workers heard of a change" in caplog.text


async def test_pages_are_merged() -> None:
    row = b'[{"id": "a", "in_flight_requests": %d, "in_flight_uncached_tokens": 0, "speed": null}]'
    rows = [page(200, row % number) for number in (2, 3)]
    answer = await asked(OtherWorkers(rows[1:]), rows[0], "/admin/endpoints")
    (merged,) = answer.json()
    assert (merged["id"], merged["in_flight_requests"]) == ("a", 5)


async def test_a_worker_answers_the_others_with_its_own_page_alone() -> None:
    team = OtherWorkers([])

    async def app(scope: Scope, _: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
        await send({"type": "http.response.body", "body": scope["path"].encode(), "more_body": True})
        await send({"type": "http.response.body", "body": b"!"})

    reply = await TeamAdmin(app, team).serve(Call("GET", "/admin/parity", b"", (), b""))
    assert reply == Reply(200, b"text/plain", b"/admin/parity!")
    assert team.asked == []


def test_endpoints_have_what_is_in_flight_at_all_workers() -> None:
    def rows(**counts: int) -> list[dict[str, object]]:
        return [
            {"id": id_, "in_flight_requests": count, "in_flight_uncached_tokens": 10 * count, "speed": None}
            for id_, count in counts.items()
        ]

    assert endpoints_page([rows(a=1, b=2), rows(a=4), rows(b=1, c=9)]) == rows(a=5, b=3)


def test_the_speed_of_an_endpoint_is_that_of_the_worker_that_measured_most_of_it() -> None:
    def rows(samples: int | None) -> list[dict[str, object]]:
        speed = None if samples is None else {"samples": samples}
        return [{"id": "a", "in_flight_requests": 0, "in_flight_uncached_tokens": 0, "speed": speed}]

    assert endpoints_page([rows(None), rows(2), rows(7), rows(3)]) == rows(7)


def test_parity_has_the_newest_differences_of_all() -> None:
    def of(*at: int, **degraded: list[str]) -> dict[str, object]:
        return {"degraded": degraded, "differences": [{"at": f"{number:04d}"} for number in at]}

    merged = parity_page(
        [of(*range(400, 200, -1), m=["chat"]), of(*range(301, 101, -1), m=["chat", "messages"], n=["x"])]
    )
    assert merged["degraded"] == {"m": ["chat", "messages"], "n": ["x"]}
    times = [one["at"] for one in merged["differences"]]
    assert len(times) == MOST_DIFFERENCES
    assert times == sorted(times, reverse=True)
    assert times[0] == "0400"


def index_of(**changes: Any) -> dict[str, Any]:
    sums: dict[str, float] = {"answers": 1, "prompt_tokens": 100, "expected_tokens": 60, "reported_tokens": 50}
    sums |= {"expected_share": 0.6, "reported_share": 0.5, "too_many_tokens": 10, "too_few_tokens": 0}
    account = {
        "window": sums | {"mean_absolute_error_percent": 10.0},
        "total": sums | {"mean_absolute_error_percent": 10.0},
        "receipts": {"agreed": 1, "less": 2},
        "inferred_restarts": 1,
    }
    bucket = {"variable": "age", "above": 0, "up_to": 1, "matches": 2, "expected_tokens": 10, "reported_tokens": 5}
    reliability = {
        "window_answers": 1024,
        "overall": account,
        "endpoints": [{"endpoint": "a", "mode": "receipts", **account}],
        "survival": [bucket | {"share": 0.5, "predicted": 0.4, "present": 0.8}],
    }
    page = {"store": "redis", "degraded": None, "queued_writes": 1, "dropped_writes": 2, "stand_in_matches": 3}
    feed = {"endpoint_id": "a", "rank": 0, "state": "not_consumer"}
    return page | {"feeds": [feed], "reliability": reliability} | changes


def test_the_index_has_what_all_have_learned_of_it() -> None:
    in_step = [{"endpoint_id": "a", "rank": 0, "state": "in_step"}]
    merged = index_page([index_of(), index_of(feeds=in_step, degraded="late"), index_of()])
    assert (merged["queued_writes"], merged["dropped_writes"], merged["stand_in_matches"]) == (3, 6, 9)
    assert (merged["store"], merged["degraded"], merged["feeds"]) == ("redis", "late", in_step)
    (endpoint,) = merged["reliability"]["endpoints"]
    for account in (merged["reliability"]["overall"], endpoint):
        assert account["receipts"] == {"agreed": 3, "less": 6}
        assert account["inferred_restarts"] == 3
        assert account["total"]["prompt_tokens"] == 300
        assert account["total"]["expected_share"] == pytest.approx(0.6)
        assert account["total"]["mean_absolute_error_percent"] == pytest.approx(10)
    (bucket,) = merged["reliability"]["survival"]
    assert (bucket["matches"], bucket["share"], bucket["predicted"]) == (6, 0.5, pytest.approx(0.4))


def test_who_is_set_aside_by_any_worker_is_set_aside_and_the_most_experienced_says_how_long_a_transfer_takes() -> None:
    def page(set_aside: list[str], decode: str, samples: int) -> dict[str, object]:
        return {
            "roles": {"p": "prefill", "d": "decode"},
            "set_aside": set_aside,
            "pairs_set_aside": [{"prefill": "p", "decode": decode}],
            "transfers": {"d": {"base_s": samples / 10, "tokens_per_s": 9.0, "samples": samples}},
        }

    assert disaggregation_page([page([], "d", 2), page(["p"], "d", 5), page(["p"], "e", 1)]) == {
        "roles": {"p": "prefill", "d": "decode"},
        "set_aside": ["p"],
        "pairs_set_aside": [{"prefill": "p", "decode": "d"}, {"prefill": "p", "decode": "e"}],
        "transfers": {"d": {"base_s": 0.5, "tokens_per_s": 9.0, "samples": 5}},
    }
