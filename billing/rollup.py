"""Sums by quarter of an hour, so that a report over millions of requests reads thousands of rows. Pure.

    quarter  owner  tenant  key  model  tags  price  currency  state     flags  verdict  |  requests  tokens ...
    12:00    a1     acme    k-1  llama        p1     USD       complete                  |  812       ...
    12:00    a1     acme    k-1  llama                         opened                    |  815       0       0

A request counts in the quarter in which it was opened: once under the state `opened`, once more under the state of its
settlement. So what is in flight is the difference. Every time zone is whole quarters from UTC, so the days of each fit.

Invariants: the sums are written in the transaction of their rows; a row belongs to one owner, so that two gateways on
one database never wait for each other; adding is all that ever happens to it; `full_pico`, `charged_pico` and
`list_pico` stay below one unit, so that no column overflows before 9.2 * 10^18 units. Unknown counts add nothing; rows
whose amount is unknown are counted in `unknown_amounts`.
Costs: one dictionary entry a batch for each set of keys in it, one statement for up to 64 of them.
"""

from collections.abc import Iterator
from hashlib import blake2b
from operator import itemgetter

from billing.money import joined_pico, split_pico
from billing.rows import Fact, Row
from billing.schema import OPENED, settlements, usage_quarters
from billing.types import SettlementState, UsageFlag
from billing.when import to_us

QUARTER_US = 15 * 60 * 1_000_000

KEYS = ("tenant_id", "key_id", "model", "tags", "price_id", "currency", "state", "flags", "verdict")
"""Columns by which is summed, beside the quarter and the owner. Empty where there is none."""

TOKENS = (
    "prompt_tokens",
    "cached_tokens",
    "discounted_tokens",
    "cache_write_tokens",
    "output_tokens",
    "reasoning_tokens",
    "expected_cached_tokens",
)
AMOUNTS = ("full", "charged", "list")
SECONDS = ("prefill_s", "decode_s")

Key = tuple[int, str, str, str, str, str, str, str, str, str]
"""The quarter, and `KEYS`."""

_COLUMNS = list(settlements.columns.keys())
_keys_of = itemgetter(*(_COLUMNS.index(name) for name in ("price_id", "currency", "state", "flags", "verdict")))
_tokens_of = itemgetter(*map(_COLUMNS.index, TOKENS))
_amounts_of = itemgetter(*(_COLUMNS.index(f"{name}_{part}") for name in AMOUNTS for part in ("units", "pico")))
_seconds_of = itemgetter(*map(_COLUMNS.index, SECONDS))
_ZEROS = [0] * (1 + len(TOKENS) + 2 + len(AMOUNTS) + 1)  # requests, tokens, reported both, amounts, unknown amounts
_REPORTED = 1 + len(TOKENS)
_AMOUNT = _REPORTED + 2
_UNKNOWN = _AMOUNT + len(AMOUNTS)


def quarter_of(us: int) -> int:
    """The beginning of the quarter of an hour in which a time is, both in microseconds."""
    return us - us % QUARTER_US


class QuarterSums:
    """The sums of one batch."""

    def __init__(self) -> None:
        self._sums: dict[Key, tuple[list[int], list[float]]] = {}

    def opened(self, fact: Fact, requests: int = 1) -> None:
        """Count openings."""
        self._of(fact, "", "", OPENED, "", "")[0][0] += requests

    def interrupted(self, fact: Fact, currency: str, requests: int) -> None:
        """Count settlements of which nothing is known."""
        counts, _ = self._of(fact, "", currency, SettlementState.INTERRUPTED.value, "", "")
        counts[0] += requests
        counts[_UNKNOWN] += requests

    def settled(self, fact: Fact, row: Row) -> None:
        """Add a row of `schema.settlements`."""
        price_id, currency, state, flags, verdict = _keys_of(row)
        counts, seconds = self._of(fact, price_id or "", currency or "", state, flags, verdict or "")
        counts[0] += 1
        for at, tokens in enumerate(_tokens_of(row), 1):
            counts[at] += tokens or 0
        prompt, cached, *_ = _tokens_of(row)
        if cached is not None and UsageFlag.ESTIMATED.value not in flags:
            counts[_REPORTED] += prompt or 0
            counts[_REPORTED + 1] += cached
        full_units, full_pico, charged_units, charged_pico, list_units, list_pico = _amounts_of(row)
        for at, units, pico in (
            (0, full_units, full_pico),
            (1, charged_units, charged_pico),
            (2, list_units, list_pico),
        ):
            counts[_AMOUNT + at] += 0 if units is None else joined_pico(units, pico)
        counts[_UNKNOWN] += charged_units is None
        for at, took_s in enumerate(_seconds_of(row)):
            seconds[at] += took_s or 0.0

    def rows(self, owner_id: str) -> Iterator[Row]:
        """Rows of `schema.usage_quarters` to be added to those that are there, in the order of their keys."""
        for key, (counts, seconds) in sorted(self._sums.items()):
            quarter_us, *keys = key
            amounts = (part for pico in counts[_AMOUNT:_UNKNOWN] for part in split_pico(pico))
            yield (
                quarter_us,
                owner_id,
                group_id(*keys),
                *keys,
                *counts[:_AMOUNT],
                *amounts,
                counts[_UNKNOWN],
                *seconds,
            )

    def _of(
        self, fact: Fact, price_id: str, currency: str, state: str, flags: str, verdict: str
    ) -> tuple[list[int], list[float]]:
        quarter_us = quarter_of(to_us(fact.opened_at))
        tags = fact.tags or ""
        key = (quarter_us, fact.tenant_id, fact.key_id, fact.model, tags, price_id, currency, state, flags, verdict)
        found = self._sums.get(key)
        if found is None:
            found = self._sums[key] = (_ZEROS.copy(), [0.0, 0.0])
        return found


def group_id(*keys: str) -> str:
    """A short name for a set of `KEYS`: they may be longer than a database takes into an index."""
    return blake2b("\0".join(keys).encode(errors="surrogatepass"), digest_size=16).hexdigest()


assert [*usage_quarters.columns.keys()][3:12] == list(KEYS)
