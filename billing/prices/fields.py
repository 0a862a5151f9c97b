"""YAML of prices and plans: numbers and times stay text until they are read exactly, and every key is known.

Errors are `PricesInvalid`, with the file and the entry at fault.
"""

from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from pathlib import Path

from billing.currencies import ISO_4217_PUBLISHED, MINOR_UNIT_PLACES
from billing.errors import PeriodInvalid, PricesInvalid, YamlInvalid
from billing.exact_yaml import read_exact
from billing.money import pico_per_token
from billing.when import parse_when

MOST_TOKENS = 10**15
"""Longest count of tokens in a file."""

_MOST_DIGITS = 64
_LARGEST_EXPONENT = 64


def read_yaml(text: str, where: str) -> object:
    """What a text says, its scalars as text. `where` names it in errors. Raises `PricesInvalid`."""
    try:
        return read_exact(text)
    except YamlInvalid as error:
        raise PricesInvalid(where, str(error)) from None


def text_of(path: Path) -> str:
    """The text of a file. Raises `PricesInvalid`."""
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PricesInvalid(str(path), f"cannot be read: {error}") from error


def keyed(value: object, where: str, known: frozenset[str]) -> dict[str, object]:
    """A mapping of known keys."""
    if not isinstance(value, dict):
        raise PricesInvalid(where, f"must be a mapping with the keys {', '.join(sorted(known))}")
    unknown = sorted(str(key) for key in value if key not in known)
    if unknown:
        raise PricesInvalid(where, f"unknown key {unknown[0]!r}; known are {', '.join(sorted(known))}")
    return value


def listed(value: object, where: str, name: str) -> list[object]:
    """A list; none where it is left out."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise PricesInvalid(where, f"`{name}` must be a list")
    return value


def currency_of(value: object, where: str) -> str:
    """A currency in which something can be paid."""
    if not isinstance(value, str) or len(value) != 3 or not (value.isascii() and value.isalpha() and value.isupper()):
        raise PricesInvalid(where, "`currency` must be three capital letters, as USD")
    if value not in MINOR_UNIT_PLACES:
        raise PricesInvalid(where, f"`currency`: {value} is not in ISO 4217 of {ISO_4217_PUBLISHED}")
    return value


class Fields:
    """The fields of one entry, read strictly. `where` names the entry in errors."""

    def __init__(self, value: object, where: str, known: frozenset[str]) -> None:
        self._fields = keyed(value, where, known)
        self.where = where

    def __contains__(self, key: str) -> bool:
        """Whether the key has a value."""
        return self._fields.get(key) is not None

    def wrong(self, key: str, why: str) -> PricesInvalid:
        """An error about one key."""
        return PricesInvalid(self.where, f"`{key}`{why}")

    def raw(self, key: str) -> object:
        """The value as it is."""
        return self._fields.get(key)

    def entries(self, key: str, known: frozenset[str], one: str) -> Iterator["Fields"]:
        """The entries of a list of mappings, each called `one` and its number in errors."""
        for number, entry in enumerate(listed(self.raw(key), self.where, key), 1):
            yield Fields(entry, f"{self.where}, {one} {number}", known)

    def optional_text(self, key: str) -> str | None:
        """A single value, None where there is none."""
        value = self._fields.get(key)
        if value is None:
            return None
        if not isinstance(value, str) or not value:
            raise self.wrong(key, " must be a single value")
        return value

    def text(self, key: str) -> str:
        """A single value."""
        value = self.optional_text(key)
        if value is None:
            raise self.wrong(key, " is missing")
        return value

    def choice(self, key: str, of: tuple[str, ...], default: str | None = None) -> str:
        """One of some words."""
        value = self.optional_text(key) or default or self.text(key)
        if value not in of:
            raise self.wrong(key, f" must be one of {', '.join(of)}, not {value!r}")
        return value

    def names(self, key: str) -> frozenset[str] | None:
        """A list of texts without doubles, None where it is left out."""
        if key not in self:
            return None
        found = listed(self.raw(key), self.where, key)
        if not found or not all(isinstance(name, str) and name for name in found) or len(set(found)) < len(found):
            raise self.wrong(key, " must be a list of names, each once")
        return frozenset(map(str, found))

    def optional_decimal(self, key: str) -> Fraction | None:
        """A number exactly as written, None where there is none."""
        text = self.optional_text(key)
        return None if text is None else self._number(key, text)

    def decimal(self, key: str) -> Fraction:
        """A number exactly as written."""
        return self._number(key, self.text(key))

    def tokens(self, key: str, default: int | None = None, *, least: int = 0) -> int:
        """A whole number of tokens."""
        if default is not None and key not in self:
            return default
        found = self.decimal(key)
        if found.denominator != 1 or not least <= found <= MOST_TOKENS:
            raise self.wrong(key, f" must be a whole number of tokens from {least} to {MOST_TOKENS}")
        return found.numerator

    def percent(self, key: str) -> Fraction:
        """A discount from above 0 to 100 percent, as a part of one."""
        found = self.decimal(key) / 100
        if not 0 < found <= 1:
            raise self.wrong(key, " must be above 0 and at most 100")
        return found

    def pico(self, key: str, per_mtok: Fraction) -> int:
        """A price per million tokens as pico-units a token."""
        try:
            return pico_per_token(per_mtok)
        except ValueError as error:
            raise self.wrong(key, f": {error}") from None

    def when(self, key: str) -> datetime:
        """A moment."""
        return self._time(key, self.text(key))

    def optional_when(self, key: str) -> datetime | None:
        """A moment, None where there is none."""
        text = self.optional_text(key)
        return None if text is None else self._time(key, text)

    def period(self) -> tuple[datetime, datetime | None]:
        """`from`, and `to` if there is one."""
        begins, ends = self.when("from"), self.optional_when("to")
        if ends is not None and ends <= begins:
            raise PricesInvalid(self.where, f"`to` ({ends.isoformat()}) must be after `from` ({begins.isoformat()})")
        return begins, ends

    def _number(self, key: str, text: str) -> Fraction:
        try:
            number = Decimal(text)
        except (InvalidOperation, ValueError):
            raise self.wrong(key, f": {text!r} is no number") from None
        if not number.is_finite():
            raise self.wrong(key, f": {text!r} is no number")
        if len(text) > _MOST_DIGITS or abs(number.adjusted()) > _LARGEST_EXPONENT:
            raise self.wrong(key, ": it is too long, or too far from one, to be a price or a count")
        return Fraction(number)

    def _time(self, key: str, text: str) -> datetime:
        try:
            return parse_when(text)
        except PeriodInvalid as error:
            raise self.wrong(key, f": {error}") from None
