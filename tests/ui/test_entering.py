"""In and out: the token, the session, and what is said when one of them is wrong."""

import pytest
from playwright.sync_api import expect

from tests.ui.conftest import Account, OpenPage, StartWorld, log_in
from tests.ui.world import World

pytestmark = pytest.mark.ui


def test_a_wrong_token_is_refused_in_words_and_the_right_one_lets_in(running: World, open_page: OpenPage) -> None:
    page = open_page(running.ui, login=False)
    expect(page.get_by_label("Token of the dashboard")).to_be_focused()
    page.keyboard.type("not-the-token-at-all")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("not the token of the dashboard")
    log_in(page)
    expect(page.get_by_role("heading", level=1, name="Overview")).to_be_focused()
    assert page.context.cookies()[0]["httpOnly"]


def test_a_session_outlives_a_reload_and_ends_with_the_log_out(running: World, open_page: OpenPage) -> None:
    page = open_page(running.ui)
    page.reload()
    expect(page.get_by_role("navigation", name="Views")).to_be_visible()
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("Token of the dashboard")).to_be_focused()
    assert page.context.cookies() == []
    assert page.request.get(f"{running.ui}api/fleet").status == 401
    page.reload()
    expect(page.get_by_label("Token of the dashboard")).to_be_visible()


def test_who_is_logged_out_elsewhere_is_asked_for_the_token_again(running: World, open_page: OpenPage) -> None:
    page = open_page(running.ui)
    page.context.clear_cookies()
    page.click('nav a[href="#findings"]')
    expect(page.get_by_label("Token of the dashboard")).to_be_visible()
    expect(page.locator("nav")).to_have_count(0)


def test_a_dashboard_that_is_off_says_how_it_is_turned_on(
    running: World, open_page: OpenPage, accounts: list[Account], start_world: StartWorld
) -> None:
    off = start_world(ui__token_file=None)
    page = open_page(f"{off.gateway.url}/ui", login=False)
    accounts[-1].expected.append("404")
    expect(page.locator("body")).to_contain_text("ui.token_file")


def test_the_dashboard_works_wherever_it_is_put(open_page: OpenPage, start_world: StartWorld) -> None:
    elsewhere = start_world(ui__path="/llm/looking-glass")
    page = open_page(elsewhere.ui.removesuffix("/"))
    assert page.url == elsewhere.ui
    expect(page.locator("#link")).to_have_text("live")
    page.goto(f"{elsewhere.ui}#constructor")
    expect(page.get_by_role("heading", level=1, name="Overview")).to_be_visible()
