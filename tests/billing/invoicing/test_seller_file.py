"""The seller's file: read strictly, every value as it was written, and each mistake named."""

from decimal import Decimal
from pathlib import Path

import pytest

from billing import PeriodInvalid
from billing.invoicing import InvoiceInvalid, LineKind, period_in, read_seller
from billing.invoicing.documents import Fact
from billing.when import from_us

GOOD = """
seller:
  id: prefix-jp
  name: 株式会社プレフィックスゲート
  address: [〒100-0001 東京都千代田区千代田1-1]
  registrations: [{label: Registration number, value: 0123456789012}]
currency: JPY
timezone: Asia/Tokyo
number_format: "PG-{year}-{sequence:05d}"
tax_rounding: down
taxes:
  standard: {label: Consumption tax, rate_percent: 10}
  reduced: {label: Consumption tax (reduced), rate_percent: 8.00}
  reverse: {label: VAT, rate_percent: 0, note: Reverse charge}
default_tax: standard
taxes_of: {plan: reduced}
buyers:
  acme: {name: 髙島屋, tax: reverse}
  zeta: {name: Zeta}
fonts: [fonts/Own.ttf]
"""


def written(path: Path, text: str = GOOD) -> Path:
    (path / "fonts").mkdir(exist_ok=True)
    (path / "fonts" / "Own.ttf").touch()
    target = path / "seller.yaml"
    target.write_text(text, "utf-8")
    return target


def test_values_stay_the_text_that_was_written(tmp_path: Path) -> None:
    seller = read_seller(written(tmp_path))
    assert seller.party.facts == (Fact("Registration number", "0123456789012"),)
    assert seller.taxes["reduced"].rate_percent == Decimal("8.00")
    assert seller.number(2026, 7) == "PG-2026-00007"
    assert seller.fonts == (tmp_path / "fonts" / "Own.ttf",)


def test_the_tax_of_a_row_is_that_of_its_buyer_else_of_its_kind_else_the_default(tmp_path: Path) -> None:
    seller = read_seller(written(tmp_path))
    kinds = (LineKind.USAGE, LineKind.PLAN)
    assert [seller.tax_of("acme", kind) for kind in kinds] == ["reverse", "reverse"]
    assert [seller.tax_of("zeta", kind) for kind in kinds] == ["standard", "reduced"]


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("currency: JPY", "currency: XAU", "XAU"),
        ("currency: JPY", "currency: JPY\ncurrency: USD", "'currency' stands twice"),
        ("currency: JPY", "currency: JPY\ncurency: JPY", "curency"),
        ("currency: JPY\n", "", "currency"),
        ("Asia/Tokyo", "Asia/Atlantis", "Asia/Atlantis"),
        ("rate_percent: 10", "rate_percent: ten", "rate_percent"),
        ("rate_percent: 10", "rate_percent: -1", "must be between 0 and"),
        ("rate_percent: 10", "rate_percent: NaN", "must be between 0 and"),
        ("default_tax: standard", "default_tax: none", "the tax 'none' is not among `taxes`"),
        ("tax: reverse", "tax: gone", "the tax 'gone'"),
        ("tax_rounding: down", "tax_rounding: sideways", "sideways"),
        ("PG-{year}-{sequence:05d}", "PG-{sequence}", "must have {year} and {sequence}"),
        ("PG-{year}-{sequence:05d}", "PG-{yeer}", "cannot be filled in"),
        ("taxes_of: {plan: reduced}", "payment_terms_days: -1", "must not be negative"),
        ("fonts/Own.ttf", "fonts/Gone.ttf", "`fonts`: there is no file"),
        ("buyers:", "buyers: [", "seller.yaml"),
    ],
)
def test_a_mistake_is_refused_with_the_file_and_the_key(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    assert old in GOOD
    with pytest.raises(InvoiceInvalid) as refused:
        read_seller(written(tmp_path, GOOD.replace(old, new, 1)))
    assert complaint in str(refused.value)
    assert "seller.yaml" in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvoiceInvalid, match=r"gone\.yaml"):
        read_seller(tmp_path / "gone.yaml")


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("2026-12", "2026-11-30T15:00+00:00", "2026-12-31T15:00+00:00"),
        ("2026-02-28", "2026-02-27T15:00+00:00", "2026-02-28T15:00+00:00"),
        ("2026-11-01/2026-11-15", "2026-10-31T15:00+00:00", "2026-11-14T15:00+00:00"),
        ("2026-11-01T00:00Z/2026-11-02", "2026-11-01T00:00+00:00", "2026-11-01T15:00+00:00"),
    ],
)
def test_a_period_is_read_by_the_clocks_of_its_zone(text: str, start: str, end: str) -> None:
    found = period_in(text, "Asia/Tokyo")
    assert [from_us(us).isoformat(timespec="minutes") for us in (found.start_us, found.end_us)] == [start, end]


@pytest.mark.parametrize(
    "text", ["2026", "2026-13", "2026-11-01/2026-11-01", "2026-11-02/2026-11-01", "x/y", "", "9999-12", "9999-12-31"]
)
def test_what_is_no_period_is_refused(text: str) -> None:
    with pytest.raises(PeriodInvalid):
        period_in(text, "UTC")
