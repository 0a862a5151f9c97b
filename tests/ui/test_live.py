"""What happens shows by itself; and where it does not, the page says so."""

import random
import re

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.gateway.conftest import running_gateway
from tests.ui.conftest import WITHIN_MS, Account, OpenPage, StartWorld, enter
from tests.ui.world import Talk, World, in_own_loop, say

pytestmark = pytest.mark.ui


def ask(running: World, tenant: str = "acme") -> None:
    """One request, answered whole."""

    async def once() -> None:
        async with httpx.AsyncClient(timeout=60) as client:
            await say(client, running, Talk(tenant, "You answer briefly."), random.Random())

    in_own_loop(once)


def newest(page: Page) -> str:
    return str(page.locator("details.decision summary").first.inner_text())


def test_a_request_shows_while_one_looks_and_not_while_it_is_paused(running: World, open_page: OpenPage) -> None:
    page = open_page(running.ui)
    enter(page, "decisions")
    before = newest(page)
    ask(running)
    expect(page.locator("details.decision summary").first).not_to_have_text(before, timeout=WITHIN_MS)
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("#link")).to_have_text(re.compile(r"paused since \d\d:\d\d:\d\d"))
    held = newest(page)
    ask(running, "initech")
    page.wait_for_timeout(2_500)
    assert newest(page) == held
    page.get_by_role("button", name="Go on").click()
    expect(page.locator("details.decision summary").first).to_contain_text("initech")
    expect(page.locator("#link")).to_have_text("live")


def test_the_list_stands_still_while_a_decision_is_open(running: World, open_page: OpenPage) -> None:
    page = open_page(running.ui)
    enter(page, "decisions")
    page.locator("details.decision summary").first.click()
    held = newest(page)
    ask(running)
    more = page.get_by_role("button", name=re.compile(r"Show \d+ newer decision"))
    expect(more).to_be_visible(timeout=WITHIN_MS)
    assert newest(page) == held
    more.click()
    expect(page.locator("details.decision summary").first).not_to_have_text(held)


def test_a_gateway_that_goes_away_is_told_and_found_again(
    open_page: OpenPage, accounts: list[Account], start_world: StartWorld
) -> None:
    gone = start_world()
    page = open_page(gone.ui)
    accounts[-1].expected += ["Failed to load", "ERR_"]
    expect(page.locator("#link")).to_have_text("live")
    port = int(gone.gateway.url.rpartition(":")[2])
    config = gone.config
    engines = gone.engines
    gone.gateway.server.should_exit = True
    expect(page.locator("#link")).to_have_text(re.compile("reconnecting|stale since"), timeout=WITHIN_MS)
    expect(page.locator("#link")).to_have_text(re.compile(r"stale since \d\d:\d\d:\d\d"), timeout=WITHIN_MS)
    expect(page.locator("#said")).to_contain_text("stale")
    expect(page.get_by_role("table").first).to_contain_text(next(iter(engines)))
    again = config.model_copy(update={"listen": config.listen.model_copy(update={"port": port})})
    with running_gateway(again):
        expect(page.locator("#link")).to_have_text("live", timeout=2 * WITHIN_MS)
        expect(page.locator("#said")).to_have_text("Live")


def test_what_is_degraded_comes_first_with_a_command_that_can_be_copied(
    open_page: OpenPage, accounts: list[Account], start_world: StartWorld
) -> None:
    broken = start_world()
    page = open_page(broken.ui, permissions=["clipboard-read", "clipboard-write"])
    expect(page.get_by_text("Nothing is degraded.")).to_be_visible()
    broken.engines["gpu-2"].kill()
    trouble = page.locator("article.trouble").first
    expect(trouble).to_contain_text("gpu-2", timeout=WITHIN_MS)
    expect(trouble).to_contain_text("To mend it:")
    expect(page.locator("nav .badge")).to_contain_text("1")
    assert page.locator("main > *").nth(1).get_attribute("class") == "troubles"
    command = trouble.locator("code").inner_text()
    trouble.get_by_role("button", name="Copy the command").click()
    expect(page.locator("#said")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == command
    page.evaluate("navigator.clipboard.writeText('')")
    page.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined})")  # as without TLS
    trouble.get_by_role("button", name="Copy the command").click()
    enter(page, "fleet")
    page.get_by_label("Find").click()
    page.keyboard.press("Control+V")
    expect(page.get_by_label("Find")).to_have_value(command)
    page.get_by_label("Find").fill("gpu-2")
    expect(page.locator("table.stack tbody tr td").first).to_contain_text("down")


def test_a_viewer_too_many_is_told_why_it_is_not_live(
    open_page: OpenPage, accounts: list[Account], start_world: StartWorld
) -> None:
    small = start_world(ui__max_viewers=1)
    open_page(small.ui)
    page = open_page(small.ui)
    accounts[-1].expected.append("429")
    expect(page.locator("#link")).to_contain_text("not live", timeout=WITHIN_MS)


def test_screen_readers_hear_of_changes_of_state_and_not_of_figures(running: World, open_page: OpenPage) -> None:
    page = open_page(running.ui)
    expect(page.locator("#said")).to_have_text("Live")
    page.evaluate("""() => {
        window.heard = 0;
        new MutationObserver(() => (window.heard += 1)).observe(
            document.getElementById("said"), {childList: true, characterData: true, subtree: true});
    }""")
    for _ in range(3):
        ask(running)
        page.wait_for_timeout(1_100)
    assert page.evaluate("window.heard") == 0
    assert page.locator("[aria-live]:not(#said), [role=status]:not(#said)").count() == 0


def test_a_page_that_nobody_looks_at_is_no_viewer(running: World, open_page: OpenPage) -> None:
    page = open_page(running.ui)
    expect(page.locator("#link")).to_have_text("live")
    looking = running.gateway.metric("prefixgate_ui_viewers")
    page.clock.install()
    turn = """hidden => {
        Object.defineProperty(document, "hidden", { configurable: true, value: hidden });
        document.dispatchEvent(new Event("visibilitychange"));
    }"""
    page.evaluate(turn, True)
    page.clock.fast_forward(61_000)
    page.evaluate(turn, False)
    expect(page.locator("#link")).to_have_text("live")
    page.evaluate(turn, True)
    page.clock.fast_forward(61_000)
    for _ in range(100):
        if running.gateway.metric("prefixgate_ui_viewers") == looking - 1:
            return
        page.wait_for_timeout(100)
    pytest.fail("the page is still a viewer")
