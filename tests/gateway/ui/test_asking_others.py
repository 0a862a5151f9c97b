"""What one worker's dashboard asks the others, and what it answers them."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from fastapi import FastAPI, HTTPException

from gateway.decision_log import DecisionLog
from gateway.errors import BadRequest, GatewayError, NotFound, RateLimited, Unavailable
from gateway.team.messages import Call, Reply
from gateway.team_admin import Also
from gateway.telemetry import Telemetry
from gateway.ui.caches import Caches
from gateway.ui.inside import INSIDE, Inside
from gateway.ui.live import DECISIONS, LIVE, Live, LiveParts
from tests.gateway.workers.test_team_admin import OtherWorkers


def reply(content: object, status: int = 200) -> Reply:
    return Reply(status, b"application/json", msgspec.json.encode(content))


def pages(parity: Any = None, decided: Any = None) -> FastAPI:
    """Some pages of the admin API."""
    app = FastAPI()

    @app.get("/admin/parity")
    async def of_parity() -> Any:
        return parity

    @app.get("/admin/requests/{request_id}")
    async def decision(request_id: str) -> Any:
        if decided is None:
            raise HTTPException(404, "no such request")
        return {"request_id": request_id, "by": decided}

    @app.get("/admin/broken")
    async def broken(status: int) -> Any:
        raise HTTPException(status, "it is so" if status != 418 else {"no": "words"})

    return app


async def test_what_each_worker_knows_a_part_of_is_put_together() -> None:
    ours, theirs = ({"degraded": {model: ["chat"]}, "differences": []} for model in ("a", "b"))
    team = OtherWorkers([reply(theirs), reply("it is being started", 503)])
    page = await Inside(pages(ours), team).page("/admin/parity", {"x": "1"})
    assert page["degraded"] == {"a": ["chat"], "b": ["chat"]}
    assert [(one.path, one.query, one.headers) for one in team.asked] == [(f"{INSIDE}/admin/parity", b"x=1", ())]


async def test_what_one_of_them_knows_is_asked_of_the_others_where_we_do_not() -> None:
    team = OtherWorkers([reply("", 404), reply({"by": "another"})])
    assert (await Inside(pages(), team).page("/admin/requests/r1"))["by"] == "another"
    assert (await Inside(pages(decided="us"), team).page("/admin/requests/r1"))["by"] == "us"
    assert len(team.asked) == 1
    with pytest.raises(NotFound, match="no such request"):
        await Inside(pages(), OtherWorkers([])).page("/admin/requests/r1")
    with pytest.raises(NotFound):
        await Inside(pages(), None).page("/admin/requests/r1")


async def test_a_call_of_another_worker_is_answered_by_the_page_itself() -> None:
    found = await Inside(pages({"own": 1}), None).serve(Call("GET", f"{INSIDE}/admin/parity", b"", (), b""))
    assert msgspec.json.decode(found.body) == {"own": 1}


@pytest.mark.parametrize(
    ("status", "kind"), [(404, NotFound), (429, RateLimited), (400, BadRequest), (422, BadRequest), (503, Unavailable)]
)
async def test_a_page_that_fails_says_why(status: int, kind: type[GatewayError]) -> None:
    with pytest.raises(kind, match="it is so"):
        await Inside(pages(), None).page("/admin/broken", {"status": str(status)})
    with pytest.raises(Unavailable, match="not as it should be"):
        await Inside(pages(), None).page("/admin/broken", {"status": "418"})


async def test_calls_that_begin_so_are_the_dashboards_and_all_others_the_admin_apis() -> None:
    async def ui(call: Call) -> Reply:
        return reply("ui")

    async def admin(call: Call) -> Reply:
        return reply("admin")

    also = Also(INSIDE, ui)
    inner, outer = Call("GET", f"{INSIDE}live", b"", (), b""), Call("GET", "/admin/parity", b"", (), b"")
    assert (await also.before(admin)(inner)) == reply("ui")
    assert (await also.before(admin)(outer)) == reply("admin")
    assert (await also.before(None)(outer)).status == 404


def live(team: OtherWorkers | None) -> Live:
    """Of a gateway without endpoints."""
    nothing: Any = SimpleNamespace(fleet=SimpleNamespace(snapshot=list))
    told: Any = SimpleNamespace(degraded=lambda: {"index": "timeout"})
    waits: Any = SimpleNamespace(report=lambda: {"waiting": {"first": 2, "second": 3}})
    inside = Inside(pages(), None)
    parts = LiveParts(
        endpoints=nothing,
        perf=nothing,
        decisions=DecisionLog(),
        pages=told,
        telemetry=Telemetry(),
        gate=waits,
        draining=lambda: False,
        viewers=lambda: 1,
        wall=lambda: datetime(2026, 11, 30, tzinfo=UTC),
        team=team,
    )
    return Live(parts, inside, Caches(inside))


async def test_all_workers_are_one_view() -> None:
    other = msgspec.json.decode((await live(None).serve(Call("GET", LIVE, b"", (), b""))).body)
    view = await live(OtherWorkers([reply(other), reply(other), reply("", 503)])).collect()
    assert (view["live"]["viewers"], view["live"]["queued_requests"]) == (3, 15)
    assert view["live"]["workers"] == {"alive": 3, "wanted": 3}
    assert [one["part"] for one in view["health"]["degraded"]] == ["index"]
    assert view["endpoints"] == {}


async def test_decisions_of_all_workers_are_one_list() -> None:
    rows = [{"request_id": f"r{number}", "opened_at": f"{number}"} for number in range(3)]
    team = OtherWorkers([reply(rows[:2]), reply(rows[2:])])
    found = await live(team).decisions(2, "acme", None)
    assert [row["request_id"] for row in found] == ["r2", "r1"]
    (asked,) = team.asked
    assert msgspec.json.decode(asked.query) == {"most": 2, "tenant": "acme", "endpoint": None}
    own = await live(None).serve(Call("GET", DECISIONS, asked.query, (), b""))
    assert msgspec.json.decode(own.body) == []


async def test_other_calls_are_for_the_pages_within() -> None:
    found = await live(None).serve(Call("GET", f"{INSIDE}/admin/requests/r1", b"", (), b""))
    assert found.status == 404
