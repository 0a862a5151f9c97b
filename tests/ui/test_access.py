"""For everyone: by keyboard, by ear, large, small, in both colour schemes, without motion."""

from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.ui.conftest import NARROW, WIDE, OpenPage, enter
from tests.ui.world import World

pytestmark = pytest.mark.ui

VIEWS = ("overview", "fleet", "cache", "latency", "prefixes", "decisions", "tenants", "invoices", "findings")
RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}


def violations(page: Page, axe: str) -> list[str]:
    """What the rules find, as lines; frames of other documents are not ours."""
    page.evaluate(axe)
    found: list[dict[str, Any]] = page.evaluate(
        "rules => axe.run({exclude: ['iframe']}, rules).then(found => found.violations)", RULES
    )
    return [f"{one['id']}: {node['html'][:160]} {node['any'][:1]}" for one in found for node in one["nodes"]]


def open_all(page: Page, view: str) -> None:
    """What can be opened in a view is looked at too."""
    if view == "decisions":
        page.locator("details.decision summary").first.click()
        expect(page.get_by_text("Candidates, cheapest first")).to_be_visible()
    for summary in page.get_by_text("as a table").all():
        summary.click()


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_view_keeps_the_rules_of_accessibility(
    running: World, open_page: OpenPage, axe: str, scheme: str, size: tuple[int, int]
) -> None:
    page = open_page(running.ui, size=size, scheme=scheme, login=False)
    page.wait_for_selector("#token")
    found = {"entrance": violations(page, axe)}
    page.close()
    page = open_page(running.ui, size=size, scheme=scheme)
    for view in VIEWS:
        enter(page, view)
        open_all(page, view)
        found[view] = violations(page, axe)
    assert {view: wrong for view, wrong in found.items() if wrong} == {}


@pytest.mark.parametrize("width", [320, 400, 640, 1280])
def test_no_view_is_wider_than_the_screen_also_at_twice_the_size(
    running: World, open_page: OpenPage, width: int
) -> None:
    """640 is what a window of 1,280 has at 200 %."""
    page = open_page(running.ui, size=(width, 700))
    for view in VIEWS:
        enter(page, view)
        open_all(page, view)
        too_wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert too_wide == 0, view


def test_all_of_it_is_reached_by_keyboard(running: World, open_page: OpenPage) -> None:
    page = open_page(running.ui)
    focused = page.locator(":focus")
    page.locator("body").press("Tab")
    page.evaluate("document.activeElement.blur(), document.body.focus()")
    page.reload()
    page.wait_for_selector("nav")
    expect(page.get_by_role("heading", level=1)).to_be_focused()
    page.keyboard.press("Shift+Tab")
    expect(focused).to_have_text("Findings")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1, name="Findings")).to_be_focused()
    for name in ("Log out", "Colours: system", "Pause"):
        page.get_by_role("button", name=name).focus()
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        page.keyboard.press("Shift+Tab")
        page.keyboard.press("Tab")
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid", outline
    page.keyboard.press("Space")
    expect(page.get_by_role("button", name="Go on")).to_be_focused()
    page.keyboard.press("Space")
    page.locator(".skip").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_be_focused()


def test_the_tree_is_walked_with_the_arrow_keys(running: World, open_page: OpenPage) -> None:
    page = open_page(running.ui)
    enter(page, "prefixes")
    items = page.get_by_role("treeitem")
    first = items.first
    expect(first).to_have_attribute("aria-expanded", "true")
    assert page.locator('[role=treeitem][tabindex="0"]').count() == 1
    first.focus()
    page.keyboard.press("ArrowRight")
    inner = page.locator(":focus")
    expect(inner).to_have_attribute("aria-level", "2")
    page.keyboard.press("ArrowLeft")
    expect(first).to_be_focused()
    page.keyboard.press("ArrowLeft")
    expect(first).to_have_attribute("aria-expanded", "false")
    page.keyboard.press("ArrowDown")
    expect(items.nth(1)).to_be_focused()
    page.keyboard.press("End")
    expect(items.last).to_be_focused()
    page.keyboard.press("Home")
    expect(first).to_be_focused()
    page.keyboard.press("Enter")
    expect(first).to_have_attribute("aria-expanded", "true")


def test_a_focus_stays_where_it_is_while_figures_change(running: World, open_page: OpenPage) -> None:
    page = open_page(running.ui)
    enter(page, "fleet")
    find = page.get_by_label("Find")
    find.click()
    page.keyboard.type("gpu-", delay=300)
    page.wait_for_timeout(1_500)
    expect(find).to_be_focused()
    expect(find).to_have_value("gpu-")


@pytest.mark.parametrize("asked", ["light", "dark"])
def test_the_colours_are_the_systems_or_those_that_were_chosen(running: World, open_page: OpenPage, asked: str) -> None:
    page = open_page(running.ui, scheme=asked)
    ground = "getComputedStyle(document.body).backgroundColor"
    of_system = page.evaluate(ground)
    other = {"light": "dark", "dark": "light"}[asked]
    switch = page.get_by_role("button", name="Colours:")
    while "Colours: " + other != switch.inner_text():
        switch.click()
        page.wait_for_timeout(50)
    assert page.evaluate(ground) != of_system
    page.reload()
    expect(switch).to_have_text(f"Colours: {other}")
    assert page.evaluate(ground) != of_system


def test_nothing_moves_for_those_who_asked_for_that(running: World, open_page: OpenPage) -> None:
    page = open_page(running.ui, reduced_motion="reduce")
    page.evaluate("document.querySelector('#link .pill').dataset.state = 'reconnecting'")
    assert page.evaluate("document.getAnimations().length") == 0


def test_there_are_landmarks_and_one_heading_for_each_view(running: World, open_page: OpenPage) -> None:
    page = open_page(running.ui)
    for view in VIEWS:
        enter(page, view)
        for landmark in ("banner", "navigation", "main"):
            expect(page.get_by_role(landmark)).to_have_count(1)
        expect(page.get_by_role("heading", level=1)).to_have_count(1)
        assert page.locator("table:not(:has(caption))").count() == 0
        assert page.locator("table th:not([scope])").count() == 0
        assert page.locator("svg:not([role=img]):not([aria-hidden])").count() == 0
