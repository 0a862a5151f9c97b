"""The price file while the gateway runs: taken when it changes, and only if it can be used."""

import os
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from billing import PricesInvalid
from billing.prices.live import LivePrices
from billing.prices.view import Change, ChangeKind, book_view, per_mtok, quote_view
from tests.billing.samples import NOON

OLD = """
currency: USD
prices:
  - {id: a, model: llama, input_per_mtok: 1, output_per_mtok: 4, from: 2026-01-01}
  - {id: b, model: qwen, input_per_mtok: 1, output_per_mtok: 4, from: 2027-01-01}
tenants: {acme: {bill_cached: min_of_reported_and_expected, discounts: [{id: d, percent: 12.5, from: 2026-01-01}]}}
"""


class File:
    """A price file, and prices that read it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.now = NOON
        self.write(OLD)
        self.prices = LivePrices(path, self.clock)

    def clock(self) -> datetime:
        return self.now

    def write(self, text: str) -> None:
        """As an editor that replaces the file, so that its mark is another one whatever the clock's resolution."""
        new = self.path.with_suffix(".new")
        new.write_text(text, "utf-8")
        new.replace(self.path)

    def rate(self) -> int | None:
        price = self.prices.quote("llama", None, NOON).price
        return None if price is None else price.input_pico


@pytest.fixture
def file(tmp_path: Path) -> File:
    return File(tmp_path / "prices.yaml")


def test_a_file_that_changes_is_taken_once_it_has_settled(file: File) -> None:
    assert file.prices.poll() is None
    file.now += timedelta(hours=1)
    file.write(OLD.replace("id: a, model: llama, input_per_mtok: 1", "id: a, model: llama, input_per_mtok: 2"))
    assert file.prices.poll() is None, "it may still be written"
    assert file.rate() == 10**6
    found = file.prices.poll()
    assert found is not None
    assert found.problem is None
    assert found.changes == [Change("price a", ChangeKind.CHANGED, had_begun=True)]
    assert file.rate() == 2 * 10**6
    assert file.prices.loaded_at == file.now
    assert file.prices.poll() is None


def test_a_file_that_cannot_be_used_changes_nothing_until_it_can(file: File) -> None:
    loaded_at = file.prices.loaded_at
    file.now += timedelta(hours=1)
    file.write("currency: USD\nprices: [{model: llama}]")
    found = [file.prices.poll(), file.prices.poll()][1]
    assert found is not None
    assert found.problem == file.prices.problem
    assert "`from` is missing" in (found.problem or "")
    assert (file.rate(), file.prices.loaded_at) == (10**6, loaded_at)
    assert file.prices.poll() is None, "it is said once"
    file.path.unlink()
    assert [file.prices.poll(), file.prices.poll()][1] is not None
    assert "cannot be read" in (file.prices.problem or "")
    file.write(OLD)
    assert [file.prices.poll(), file.prices.poll()][1] is not None
    assert file.prices.problem is None


def test_a_reload_by_hand_does_not_wait(file: File) -> None:
    file.write("currency: EUR\n")
    found = file.prices.reload()
    assert {(one.what, one.kind, one.had_begun) for one in found.changes} == {
        ("price a", ChangeKind.REMOVED, True),
        ("price b", ChangeKind.REMOVED, False),
        ("discount d", ChangeKind.REMOVED, True),
        ("bill_cached of acme", ChangeKind.REMOVED, False),
        ("currency", ChangeKind.CHANGED, False),
    }
    assert file.prices.currency == "EUR"
    assert file.rate() is None
    assert file.prices.poll() is None


def test_a_text_is_tried_without_being_applied(file: File) -> None:
    added = OLD.replace(
        "tenants:", "  - {id: c, model: c, input_per_mtok: 1, output_per_mtok: 1, from: 2026-01-01}\ntenants:"
    )
    assert file.prices.check(added) == [Change("price c", ChangeKind.ADDED, had_begun=False)]
    assert file.prices.check(OLD) == []
    with pytest.raises(PricesInvalid, match="the text given"):
        file.prices.check("prices: [")
    assert file.prices.quote("c", None, NOON).price is None


def test_without_a_file_there_are_no_prices_and_nothing_to_reload() -> None:
    prices = LivePrices(None, lambda: NOON)
    assert prices.poll() is None
    assert "no prices_file" in (prices.reload().problem or "")
    assert prices.quote("llama", None, NOON).price is None


def test_a_file_that_is_wrong_at_the_start_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PricesInvalid):
        LivePrices(tmp_path / "absent.yaml", lambda: NOON)


def test_a_file_that_was_touched_and_says_the_same_changes_nothing(file: File) -> None:
    os.utime(file.path, ns=(1, 1))
    found = [file.prices.poll(), file.prices.poll()][1]
    assert found is not None
    assert found.changes == []


def test_rates_are_shown_per_million_tokens_to_the_last_digit(file: File) -> None:
    assert [per_mtok(pico) for pico in (0, 2_800, 600_000, 1_000_000, 10_000_000, 123_456_789)] == [
        *("0", "0.0028", "0.6", "1", "10", "123.456789")
    ]
    shown = book_view(file.prices.book)
    assert shown["tenants"] == {
        "acme": {
            "bill_cached": "min_of_reported_and_expected",
            "discounts": [
                {"id": "d", "percent": "12.5", "models": None, "from": "2026-01-01T00:00:00+00:00", "to": None}
            ],
        }
    }
    quote = quote_view(file.prices.quote("llama", "acme", NOON), 5)
    price, on_list = quote["price"], quote["list"]
    assert isinstance(price, dict)
    assert isinstance(on_list, dict)
    assert (price["id"], price["input_per_mtok"], on_list["input_per_mtok"]) == ("a~d", "0.875", "1")
    assert quote_view(file.prices.quote("unknown", None, NOON), None)["price"] is None
