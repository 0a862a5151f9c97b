"""Reading a price file: YAML whose numbers and times stay text until they are read exactly."""

import re
from collections.abc import Hashable
from datetime import datetime
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from pathlib import Path
from typing import Any

import yaml

from billing.errors import PeriodInvalid, PricesInvalid
from billing.money import pico_per_token
from billing.pricing import Price
from billing.when import parse_when

_BOOK_KEYS = frozenset({"currency", "prices"})
PRICE_KEYS = frozenset(
    {
        "id",
        "model",
        "input_per_mtok",
        "cached_input_per_mtok",
        "cached_input_ratio",
        "cache_write_per_mtok",
        "output_per_mtok",
        "from",
        "to",
    }
)
_CURRENCY = re.compile(r"[A-Z]{3}")


class _TextLoader(yaml.SafeLoader):
    """YAML in which every scalar but null is text, and a key stands once in its mapping."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        """A mapping; two equal keys are an error, where YAML would keep the last."""
        keys = [key.value for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(None, None, f"the key {key!r} stands twice", node.start_mark)
        return super().construct_mapping(node, deep=deep)


def _text(loader: _TextLoader, node: yaml.ScalarNode) -> str:
    return str(node.value)


for _tag in ("int", "float", "bool", "timestamp"):
    _TextLoader.add_constructor(f"tag:yaml.org,2002:{_tag}", _text)


def read_prices(path: Path) -> tuple[str | None, tuple[Price, ...]]:
    """Currency and prices of a file. Raises `PricesInvalid`."""
    where = str(path)
    try:
        loaded = yaml.load(path.read_text("utf-8"), _TextLoader)  # noqa: S506 - a SafeLoader that makes only text
    except (OSError, UnicodeDecodeError) as error:
        raise PricesInvalid(where, f"cannot be read: {error}") from error
    except yaml.YAMLError as error:
        raise PricesInvalid(where, f"is no YAML: {error}") from error
    if loaded is None:
        return None, ()
    book = _keyed(loaded, where, _BOOK_KEYS)
    prices = book.get("prices")
    prices = [] if prices is None else prices
    if not isinstance(prices, list):
        raise PricesInvalid(where, "`prices` must be a list")
    currency = book.get("currency")
    if currency is None and not prices:
        return None, ()
    if not isinstance(currency, str) or not _CURRENCY.fullmatch(currency):
        raise PricesInvalid(where, "`currency` must be three capital letters, as USD")
    return currency, tuple(
        _price(entry, f"{where}, price {number}", currency) for number, entry in enumerate(prices, 1)
    )


def _price(entry: object, where: str, currency: str) -> Price:
    fields = _Fields(_keyed(entry, where, PRICE_KEYS), where)
    model, valid_from, valid_to = fields.text("model"), fields.when("from"), fields.optional_when("to")
    if valid_to is not None and valid_to <= valid_from:
        raise PricesInvalid(where, f"`to` ({valid_to.isoformat()}) must be after `from` ({valid_from.isoformat()})")
    input_per_mtok = fields.decimal("input_per_mtok")
    return Price(
        id=fields.optional_text("id") or f"{model}@{valid_from.isoformat()}",
        model=model,
        currency=currency,
        input_pico=fields.pico("input_per_mtok", input_per_mtok),
        output_pico=fields.pico("output_per_mtok", fields.decimal("output_per_mtok")),
        valid_from=valid_from,
        valid_to=valid_to,
        cached_input_pico=_cached_pico(fields, input_per_mtok),
        cache_write_pico=fields.optional_pico("cache_write_per_mtok"),
    )


def _cached_pico(fields: "_Fields", input_per_mtok: Fraction) -> int | None:
    """The cached rate, absolute or as a ratio of the input price. Above the input price it is taken for a slip."""
    ratio = fields.optional_decimal("cached_input_ratio")
    absolute = fields.optional_decimal("cached_input_per_mtok")
    if ratio is not None and absolute is not None:
        raise PricesInvalid(fields.where, "give `cached_input_per_mtok` or `cached_input_ratio`, not both")
    if ratio is None and absolute is None:
        return None
    key = "cached_input_ratio" if absolute is None else "cached_input_per_mtok"
    cached = fields.pico(key, input_per_mtok * ratio if ratio is not None else absolute or Fraction(0))
    if cached > fields.pico("input_per_mtok", input_per_mtok):
        raise PricesInvalid(fields.where, f"`{key}` makes a cached token dearer than a fresh one; is the unit right?")
    return cached


def _keyed(value: object, where: str, known: frozenset[str]) -> dict[str, object]:
    if not isinstance(value, dict):
        raise PricesInvalid(where, f"must be a mapping with the keys {', '.join(sorted(known))}")
    unknown = sorted(str(key) for key in value if key not in known)
    if unknown:
        raise PricesInvalid(where, f"unknown key {unknown[0]!r}; known are {', '.join(sorted(known))}")
    return value


class _Fields:
    """The fields of one price, read strictly."""

    def __init__(self, fields: dict[str, object], where: str) -> None:
        self._fields = fields
        self.where = where

    def optional_text(self, key: str) -> str | None:
        value = self._fields.get(key)
        if value is None:
            return None
        if not isinstance(value, str) or not value:
            raise PricesInvalid(self.where, f"`{key}` must be a single value")
        return value

    def text(self, key: str) -> str:
        value = self.optional_text(key)
        if value is None:
            raise PricesInvalid(self.where, f"`{key}` is missing")
        return value

    def optional_decimal(self, key: str) -> Fraction | None:
        text = self.optional_text(key)
        return None if text is None else self._number(key, text)

    def decimal(self, key: str) -> Fraction:
        return self._number(key, self.text(key))

    def pico(self, key: str, per_mtok: Fraction) -> int:
        try:
            return pico_per_token(per_mtok)
        except ValueError as error:
            raise PricesInvalid(self.where, f"`{key}`: {error}") from None

    def optional_pico(self, key: str) -> int | None:
        per_mtok = self.optional_decimal(key)
        return None if per_mtok is None else self.pico(key, per_mtok)

    def when(self, key: str) -> datetime:
        return self._time(key, self.text(key))

    def optional_when(self, key: str) -> datetime | None:
        text = self.optional_text(key)
        return None if text is None else self._time(key, text)

    def _number(self, key: str, text: str) -> Fraction:
        try:
            return Fraction(Decimal(text))
        except (InvalidOperation, ValueError, OverflowError):  # the last two: NaN and infinity are no fractions
            raise PricesInvalid(self.where, f"`{key}`: {text!r} is no number") from None

    def _time(self, key: str, text: str) -> datetime:
        try:
            return parse_when(text)
        except PeriodInvalid as error:
            raise PricesInvalid(self.where, f"`{key}`: {error}") from None
