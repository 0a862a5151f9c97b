"""Every view shows what the gateway knows; what it does not know is said to be unknown."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.ui.conftest import OpenPage, enter
from tests.ui.world import DATED, MODEL, TENANTS, World

pytestmark = pytest.mark.ui


@pytest.fixture
def page(running: World, open_page: OpenPage) -> Page:
    return open_page(running.ui)


def test_the_overview_says_first_what_is_degraded_then_the_figures(page: Page) -> None:
    expect(page.get_by_text("Nothing is degraded.")).to_be_visible()
    figures = page.locator("dl.tiles")
    for name in ("Requests", "Prompt tokens", "Hit share", "Ceiling", "First token, p50", "Saved by caching"):
        expect(figures.get_by_text(name, exact=True)).to_be_visible()
    expect(figures).to_contain_text(re.compile(r"\d\sUSD"))
    expect(page.get_by_role("table").first).to_contain_text("gpu-1")


def test_the_fleet_has_every_endpoint_with_its_state_and_units(page: Page, running: World) -> None:
    enter(page, "fleet")
    rows = page.locator("table.stack tbody tr")
    expect(rows).to_have_count(len(running.engines))
    for name in running.engines:
        row = rows.filter(has_text=name)
        expect(row).to_contain_text("up")
        expect(row).to_contain_text(MODEL)
        expect(row).to_contain_text("tok/s")
    expect(page.locator("section.card").last).to_contain_text("KiB of")


def test_columns_sort_with_what_is_unknown_last(page: Page) -> None:
    enter(page, "fleet")
    header = page.get_by_role("columnheader", name="endpoint")
    first = page.locator("table.stack tbody th").first
    header.get_by_role("button").click()
    expect(header).to_have_attribute("aria-sort", "descending")
    expect(first).to_contain_text("gpu-2")
    header.get_by_role("button").click()
    expect(header).to_have_attribute("aria-sort", "ascending")
    expect(first).to_contain_text("gpu-1")


@pytest.mark.parametrize(
    ("view", "titles"),
    [
        ("cache", ("Hit share against the ceiling", "Expected against reported", "Prompt tokens")),
        ("latency", ("Time to first token", "Time between tokens", "Requests")),
    ],
)
def test_charts_say_their_values_in_words_and_as_tables(page: Page, view: str, titles: tuple[str, ...]) -> None:
    enter(page, view)
    for title in titles:
        figure = page.locator("figure").filter(has=page.get_by_role("heading", name=title))
        expect(figure.get_by_role("img")).to_have_attribute("aria-label", re.compile(rf"^{title}\. .*at last, from"))
        figure.get_by_text("Values as a table").click()
        expect(figure.get_by_role("table").locator("tbody tr")).to_have_count(60)
        expect(figure.get_by_role("table")).to_contain_text(
            "unknown" if view == "latency" and title != "Requests" else ""
        )
    page.get_by_label("Period").select_option("15m")
    expect(page.get_by_role("table").first.locator("tbody tr")).to_have_count(15)


def test_prefixes_are_a_tree_of_hashes_and_lengths(page: Page) -> None:
    enter(page, "prefixes")
    tree = page.get_by_role("tree", name="Hottest prefixes")
    expect(tree.get_by_role("treeitem").first).to_contain_text(re.compile(r"[0-9a-f]{12} \+[\d,]+ tokens"))
    expect(tree).to_contain_text("held by gpu-")


def test_a_decision_opens_to_its_candidates_term_by_term(page: Page) -> None:
    enter(page, "decisions")
    one = page.locator("details.decision").first
    expect(one.locator("summary").get_by_role("img")).to_have_attribute("aria-label", re.compile(r"prefill .*s"))
    one.locator("summary").click()
    expect(one).to_contain_text("Candidates, cheapest first")
    expect(one.locator(".candidate")).to_have_count(2)
    expect(one.locator(".candidate.chosen")).to_have_count(1)
    one.get_by_text("Terms as a table").click()
    expect(one.get_by_role("table")).to_contain_text("decode pressure")
    expect(one).to_contain_text("first token, measured")


def test_decisions_are_found_by_tenant(page: Page) -> None:
    enter(page, "decisions")
    page.get_by_label("Find").fill(DATED)
    expect(page.locator("details.decision").filter(has_not_text=DATED)).to_have_count(0)
    expect(page.locator("details.decision").first).to_be_visible()
    page.get_by_label("Find").fill("nobody")
    expect(page.get_by_text("No decision has this")).to_be_visible()


def test_tenants_have_spend_and_savings_as_the_ledger_has_them(page: Page, running: World) -> None:
    enter(page, "tenants")
    told = page.request.get(f"{running.ui}api/tenants?days=1").json()
    assert {one["tenant"] for one in told["tenants"]} == set(TENANTS)
    for one in told["tenants"]:
        row = page.locator("table.stack tbody tr").filter(has_text=one["tenant"])
        expect(row.locator(f'[title="{one["charged"]} USD"]')).to_contain_text(re.compile(r"^0\.\d{3,}\sUSD$"))
        expect(row.locator(f'[title="{one["saved"]} USD"]')).to_be_visible()


def test_an_invoice_is_previewed_with_its_page(page: Page, running: World) -> None:
    enter(page, "invoices")
    page.get_by_label("Tenant").select_option("acme")
    expect(page.get_by_role("table")).to_contain_text("Cached input tokens")
    frame = page.frame_locator("iframe.invoice")
    expect(frame.locator("body")).to_contain_text("Acme Ltd.")
    assert page.locator("iframe.invoice").get_attribute("sandbox") == ""


def test_findings_name_the_place_and_how_it_is_mended(page: Page) -> None:
    enter(page, "findings")
    found = page.locator("article.finding").first
    expect(found).to_contain_text(DATED)
    expect(found).to_contain_text("To mend it:")
    expect(found).to_contain_text("system")


def test_the_address_names_the_view_and_the_way_back_works(page: Page) -> None:
    enter(page, "fleet")
    enter(page, "tenants")
    expect(page).to_have_title("Tenants: prefixgate")
    expect(page.get_by_role("heading", level=1, name="Tenants")).to_be_focused()
    page.go_back()
    expect(page.get_by_role("heading", level=1, name="Fleet")).to_be_visible()
    assert page.locator('nav a[aria-current="page"]').inner_text() == "Fleet"
