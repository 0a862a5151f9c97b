"""Thousands of everything, and names that would be markup if anybody let them: the gateway's words are replaced."""

import json
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.ui.conftest import Account, OpenPage, enter
from tests.ui.world import World

pytestmark = pytest.mark.ui

MARKUP = '<script>alert(1)</script><img src=x onerror="alert(2)">'
MANY = 3_000
MOST_ELEMENTS = 4_000


def only_known(row: dict[str, Any], *kept: str) -> dict[str, Any]:
    """The row with all but some fields unknown."""
    return {name: value if name in kept else None for name, value in row.items()}


def replace_events(page: Page, snapshot: dict[str, Any]) -> None:
    """The stream says this once; it ends then, and what was said stays."""
    body = f"event: snapshot\nid: 1\ndata: {json.dumps(snapshot)}\n\n"
    page.route("**/events", lambda route: route.fulfill(body=body, content_type="text/event-stream"))


def snapshot_of(page: Page, ui: str) -> dict[str, Any]:
    """As the gateway would say it, out of its pages."""
    fleet, decisions = (page.request.get(f"{ui}api/{name}").json() for name in ("fleet", "decisions?limit=1"))
    health = page.request.get(f"{ui}api/health").json()
    rows = {one["id"]: one for one in fleet["endpoints"]}
    return {
        "as_of": fleet["as_of"],
        "live": {},
        "endpoints": rows,
        "decisions": decisions["decisions"],
        "health": health,
    }


@pytest.fixture
def page(running: World, open_page: OpenPage) -> Page:
    return open_page(running.ui)


def elements(page: Page) -> int:
    return int(page.evaluate("document.querySelectorAll('*').length"))


def drawn_within_ms(page: Page) -> float:
    """How long the next drawing takes, with the layout that follows."""
    return float(
        page.evaluate("""async () => {
            const state = (await import(new URL("static/state.js", document.baseURI))).state;
            const { update } = await import(new URL("static/state.js", document.baseURI));
            state.now = { ...state.now, as_of: "later" };
            await new Promise((done) => update(done));
            const began = performance.now();
            await new Promise((done) => update(() => (document.body.offsetHeight, done())));
            return performance.now() - began;
        }""")
    )


def test_thousands_of_endpoints_and_decisions_are_a_page_each(page: Page, running: World) -> None:
    told = snapshot_of(page, running.ui)
    row, decision = next(iter(told["endpoints"].values())), told["decisions"][0]
    told["endpoints"] = {f"gpu-{at}": {**row, "id": f"gpu-{at}"} for at in range(MANY)}
    told["decisions"] = [{**decision, "request_id": f"r{at}"} for at in range(MANY)]
    replace_events(page, told)
    page.reload()
    page.wait_for_selector("nav")
    for view in ("overview", "fleet", "decisions"):
        enter(page, view)
        assert elements(page) < MOST_ELEMENTS, view
        assert drawn_within_ms(page) < 500, view
    enter(page, "fleet")
    expect(page.get_by_text("1 to 50 of 3,000")).to_be_visible()
    page.get_by_role("button", name="Next").click()
    expect(page.locator("table.stack tbody th").first).to_contain_text("gpu-50")
    page.get_by_label("Find").fill("gpu-2999")
    expect(page.locator("table.stack tbody tr")).to_have_count(1)


def test_thousands_of_tenants_are_a_page_each(page: Page, running: World) -> None:
    told = page.request.get(f"{running.ui}api/tenants?days=1").json()
    told["tenants"] = [{**told["tenants"][0], "tenant": f"tenant-{at}"} for at in range(MANY)]
    page.route("**/api/tenants*", lambda route: route.fulfill(json=told))
    enter(page, "tenants")
    expect(page.get_by_text("of 3,000")).to_be_visible()
    assert elements(page) < MOST_ELEMENTS


def test_names_are_text_whatever_they_are(page: Page, running: World) -> None:
    told = snapshot_of(page, running.ui)
    row, decision = next(iter(told["endpoints"].values())), told["decisions"][0]
    told["endpoints"] = {MARKUP: {**row, "id": MARKUP, "models": [MARKUP], "state": "down", "why": MARKUP}}
    told["decisions"] = [{**decision, "tenant": MARKUP, "model": MARKUP, "endpoint": MARKUP, "reason": MARKUP}]
    told["health"] = {
        "status": "degraded",
        "degraded": [{"part": MARKUP, "why": MARKUP, "meaning": MARKUP, "remedy": MARKUP, "command": MARKUP}],
    }
    tenants = page.request.get(f"{running.ui}api/tenants?days=1").json()
    tenants["tenants"] = [{**one, "tenant": MARKUP} for one in tenants["tenants"][:1]]
    page.route("**/api/tenants*", lambda route: route.fulfill(json=tenants))
    replace_events(page, told)
    page.on("dialog", lambda dialog: pytest.fail(f"a script ran: {dialog.message}"))
    page.reload()
    page.wait_for_selector("nav")
    for view in ("overview", "fleet", "decisions", "tenants"):
        enter(page, view)
        expect(page.locator("main")).to_contain_text(MARKUP)
        assert page.locator("main img, main script").count() == 0


def test_what_is_not_known_is_never_a_zero(page: Page, running: World, accounts: list[Account]) -> None:
    told = snapshot_of(page, running.ui)
    kept = ("id", "state", "healthy", "draining", "role")
    told["endpoints"] = {name: only_known(row, *kept) for name, row in told["endpoints"].items()}
    told["live"] = dict.fromkeys(("in_flight_requests", "requests_per_s", "prompt_tokens_per_s", "hit_share"))
    decision_kept = ("request_id", "opened_at", "tenant", "model", "endpoint", "reason", "why", "terms", "state")
    told["decisions"] = [only_known(one, *decision_kept) for one in told["decisions"]]
    traffic = page.request.get(f"{running.ui}api/traffic?range=1h").json()
    traffic["points"] = [{**only_known(one, "at"), "read": True} for one in traffic["points"]]
    traffic["total"] = {**only_known(traffic["total"]), "requests": 3}
    page.route("**/api/traffic*", lambda route: route.fulfill(json=traffic))
    replace_events(page, told)
    page.reload()
    page.wait_for_selector("nav")
    enter(page, "overview")
    figures = page.locator("dl.tiles .tile")
    for name in ("Requests", "Prompt tokens", "Hit share", "Ceiling", "First token, p50"):
        expect(figures.filter(has_text=name).first.locator("dd").first).to_have_text("unknown")
    enter(page, "fleet")
    for cell in page.locator("table.stack tbody tr").first.locator("td.number").all_inner_texts():
        assert cell == "unknown"
    enter(page, "cache")
    assert page.locator("svg.chart path, svg.chart circle").count() == 0
