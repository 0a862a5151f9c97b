"""The price file and look-ups in it."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from billing import PeriodInvalid, Price, PriceBook, PricesInvalid, parse_period, parse_when
from billing.when import from_us, to_us
from tests.billing.samples import LONG_AGO, price

DAY = timedelta(days=1)


def load(tmp_path: Path, text: str) -> PriceBook:
    path = tmp_path / "prices.yaml"
    path.write_text(text, "utf-8")
    return PriceBook.load(path)


def one(fields: str) -> str:
    return f"currency: USD\nprices:\n  - {{{fields}}}\n"


PLAIN = "model: llama, input_per_mtok: 0.60, output_per_mtok: 2.40, from: 2026-11-01"


def test_a_price_is_read_exactly(tmp_path: Path) -> None:
    book = load(
        tmp_path,
        """
currency: USD
prices:
  - id: llama-winter
    model: llama
    input_per_mtok: 0.60
    cached_input_ratio: 0.1
    cache_write_per_mtok: 0.75
    output_per_mtok: 2.40
    from: 2026-11-01
    to: 2027-01-01T00:00:00+09:00
""",
    )
    assert book.currency == "USD"
    assert book.prices == (
        Price(
            id="llama-winter",
            model="llama",
            currency="USD",
            input_pico=600_000,
            output_pico=2_400_000,
            valid_from=datetime(2026, 11, 1, tzinfo=UTC),
            valid_to=datetime(2026, 12, 31, 15, tzinfo=UTC),
            cached_input_pico=60_000,
            cache_write_pico=750_000,
        ),
    )


def test_decimals_never_pass_through_a_float(tmp_path: Path) -> None:
    book = load(tmp_path, one("model: m, input_per_mtok: 123456789.123457, output_per_mtok: '0.1', from: 2026-01-01"))
    assert book.prices[0].input_pico == 123_456_789_123_457
    assert book.prices[0].output_pico == 100_000


def test_a_cached_price_may_be_absolute(tmp_path: Path) -> None:
    assert load(tmp_path, one(PLAIN + ", cached_input_per_mtok: 0.0028")).prices[0].cached_input_pico == 2_800
    assert load(tmp_path, one(PLAIN + ", cached_input_per_mtok: 0")).prices[0].cached_input_pico == 0
    assert load(tmp_path, one(PLAIN)).prices[0].cached_input_pico is None


def test_a_price_without_an_id_is_named_by_model_and_time(tmp_path: Path) -> None:
    assert load(tmp_path, one(PLAIN)).prices[0].id == "llama@2026-11-01T00:00:00+00:00"


@pytest.mark.parametrize(
    "text", ["", "currency: JPY", "currency: JPY\nprices:", "prices: []", "currency: JPY\nprices: []"]
)
def test_a_file_may_have_no_prices(tmp_path: Path, text: str) -> None:
    book = load(tmp_path, text)
    assert book.prices == ()
    assert book.price_at("llama", LONG_AGO) is None


def test_an_empty_book_has_no_currency() -> None:
    assert PriceBook.empty() == PriceBook(None, ())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1, 2]", "must be a mapping"),
        ("currency: USD\nprice: []", "unknown key 'price'"),
        ("currency: USD\nprices: {}\n", "must be a list"),
        ("currency: USD\nprices: 3\n", "must be a list"),
        ("currency: USD\nprices: [3]\n", "must be a mapping"),
        ("currency: dollars\nprices: [{}]", "three capital letters"),
        ("prices: [{}]", "three capital letters"),
        ("currency: [USD]\nprices: [{}]", "three capital letters"),
        ("currency: USD\ncurrency: JPY", "stands twice"),
        ("currency: 'USD", "is no YAML"),
        (one("input_per_mtok: 1, output_per_mtok: 1, from: 2026-01-01"), "`model` is missing"),
        (one("model: '', input_per_mtok: 1, output_per_mtok: 1, from: 2026-01-01"), "single value"),
        (one("model: m, output_per_mtok: 1, from: 2026-01-01"), "`input_per_mtok` is missing"),
        (one("model: m, input_per_mtok: 1, from: 2026-01-01"), "`output_per_mtok` is missing"),
        (one("model: m, input_per_mtok: 1, output_per_mtok: 1"), "`from` is missing"),
        (one(PLAIN + ", discount: 3"), "unknown key 'discount'"),
        (one(PLAIN + ", to: 2026-11-01"), "must be after `from`"),
        (one(PLAIN + ", to: soon"), "`to`: 'soon': not a date"),
        (one(PLAIN + ", cached_input_ratio: 0.1, cached_input_per_mtok: 0.1"), "not both"),
        (one(PLAIN + ", cached_input_ratio: 1.1"), "dearer than a fresh one"),
        (one(PLAIN + ", cached_input_per_mtok: 60"), "is the unit right"),
        (one(PLAIN + ", cached_input_ratio: 0.3333333"), "`cached_input_ratio`: finer than 6 decimal places"),
        (one(PLAIN + ", cache_write_per_mtok: 0.0000001"), "`cache_write_per_mtok`: finer than"),
        (one(PLAIN + ", cache_write_per_mtok: -1"), "between 0 and"),
        (one(PLAIN + ", cache_write_per_mtok: 1e30"), "between 0 and"),
        (one(PLAIN + ", cache_write_per_mtok: .nan"), "is no number"),
        (one(PLAIN + ", cache_write_per_mtok: NaN"), "is no number"),
        (one(PLAIN + ", cache_write_per_mtok: inf"), "is no number"),
        (one(PLAIN + ", cache_write_per_mtok: true"), "is no number"),
        (one(PLAIN + ", cache_write_per_mtok: 1:30"), "is no number"),
        (one(PLAIN + ", cache_write_per_mtok: [1]"), "single value"),
        (one(PLAIN) + f"  - {{{PLAIN}}}\n", "id is used twice"),
    ],
)
def test_a_wrong_file_says_what_and_where(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(PricesInvalid, match=message) as caught:
        load(tmp_path, text)
    assert caught.value.where


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(PricesInvalid, match=r"absent\.yaml.*cannot be read"):
        PriceBook.load(tmp_path / "absent.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00\xd8")
    with pytest.raises(PricesInvalid, match="cannot be read"):
        PriceBook.load(tmp_path / "binary.yaml")


@pytest.mark.parametrize("first_ends", [None, LONG_AGO + 3 * DAY])
def test_prices_of_one_model_must_not_overlap(first_ends: datetime | None) -> None:
    first = price(id_="old", valid_to=first_ends)
    second = price(id_="new", valid_from=LONG_AGO + 2 * DAY)
    with pytest.raises(PricesInvalid, match="price new: overlaps old of model llama"):
        PriceBook("USD", (second, first))


def test_prices_of_two_models_may_overlap() -> None:
    assert PriceBook("USD", (price(), price(id_="p2", model="other"))).price_at("other", LONG_AGO) is not None


def test_a_period_holds_its_start_and_not_its_end() -> None:
    end = LONG_AGO + DAY
    book = PriceBook("USD", (price(id_="old", valid_to=end), price(id_="new", valid_from=end)))
    instant = timedelta(microseconds=1)

    def at(when: datetime) -> str | None:
        found = book.price_at("llama", when)
        return found.id if found else None

    assert at(LONG_AGO - instant) is None
    assert at(LONG_AGO) == at(end - instant) == "old"
    assert at(end) == at(end + 1000 * DAY) == "new"
    assert book.price_at("unknown", end) is None


@settings(deadline=None)
@given(st.lists(st.integers(0, 40), min_size=2, max_size=8, unique=True), st.integers(-2, 42))
def test_each_moment_has_the_price_whose_period_holds_it(marks: list[int], moment: int) -> None:
    ends = sorted(marks)
    spans = list(zip(ends[::2], ends[1::2], strict=False))
    book = PriceBook(
        "USD",
        tuple(
            price(id_=f"{start}", valid_from=LONG_AGO + start * DAY, valid_to=LONG_AGO + end * DAY)
            for start, end in reversed(spans)
        ),
    )
    found = book.price_at("llama", LONG_AGO + moment * DAY)
    expected = [f"{start}" for start, end in spans if start <= moment < end]
    assert ([found.id] if found else []) == expected


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("2026-11-01", datetime(2026, 11, 1, tzinfo=UTC)),
        (" 2026-11-01T09:30 ", datetime(2026, 11, 1, 9, 30, tzinfo=UTC)),
        ("2026-11-01T09:30:00Z", datetime(2026, 11, 1, 9, 30, tzinfo=UTC)),
        ("2026-11-01T00:00+05:30", datetime(2026, 10, 31, 18, 30, tzinfo=UTC)),
    ],
)
def test_dates_and_times_are_read_as_utc_unless_they_say_otherwise(text: str, when: datetime) -> None:
    assert parse_when(text) == when
    assert parse_when(text).tzinfo is UTC


@pytest.mark.parametrize("text", ["yesterday", "", "2026-13-01", "1700000000.5", "9999-12-31T23:00-02:00"])
def test_what_is_no_date_is_refused(text: str) -> None:
    with pytest.raises(PeriodInvalid):
        parse_when(text)


@settings(deadline=None)
@given(st.datetimes(timezones=st.just(UTC)))
def test_microseconds_bring_every_time_back(when: datetime) -> None:
    assert from_us(to_us(when)) == when


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("2026-11", "2026-11-01", "2026-12-01"),
        ("2026-12", "2026-12-01", "2027-01-01"),
        (" 2028-02-28 ", "2028-02-28", "2028-02-29"),
        ("2026-11-01/2026-11-08T12:30", "2026-11-01", "2026-11-08T12:30"),
        ("2026-11-01T00:00+05:30/2026-11-02T00:00+05:30", "2026-10-31T18:30", "2026-11-01T18:30"),
    ],
)
def test_a_period_is_a_month_a_day_or_two_times(text: str, first: str, last: str) -> None:
    assert parse_period(text) == (parse_when(first), parse_when(last))


@pytest.mark.parametrize(
    "text", ["", "2026", "2026-13", "2026-11-31", "2026-11-01T09:30", "a/b", "2026-11-02/2026-11-01", "9999-12-31"]
)
def test_a_period_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(PeriodInvalid):
        parse_period(text)
