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
Costs: one dictionary entry a batch for each set of keys in it, and one row to be added.
"""

from collections.abc import Iterator
from functools import lru_cache
from hashlib import blake2b

from msgspec import Struct

from billing.money import PICO
from billing.rows import Billed, Fact, Row
from billing.schema import OPENED, usage_quarters
from billing.types import SettlementState, UsageFlag

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

_ESTIMATED = UsageFlag.ESTIMATED.value


class _Sums(Struct, gc=False):
    """Of one key, in the order of the columns; amounts are whole."""

    requests: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    discounted_tokens: int = 0
    cache_write_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    expected_cached_tokens: int = 0
    reported_prompt_tokens: int = 0
    reported_cached_tokens: int = 0
    full_pico: int = 0
    charged_pico: int = 0
    list_pico: int = 0
    unknown_amounts: int = 0
    prefill_s: float = 0.0
    decode_s: float = 0.0


class QuarterSums:
    """The sums of one batch."""

    def __init__(self) -> None:
        self._sums: dict[Key, _Sums] = {}

    def opened(self, fact: Fact, requests: int = 1) -> None:
        """Count openings."""
        self._of(fact, "", "", OPENED, "", "").requests += requests

    def interrupted(self, fact: Fact, currency: str, requests: int) -> None:
        """Count settlements of which nothing is known."""
        sums = self._of(fact, "", currency, SettlementState.INTERRUPTED.value, "", "")
        sums.requests += requests
        sums.unknown_amounts += requests

    def settled(self, fact: Fact, billed: Billed) -> None:
        """Add a settlement."""
        settlement, usage, charge = billed.settlement, billed.usage, billed.charge
        price_id = "" if charge.price is None else charge.price.id
        verdict = "" if settlement.verdict is None else str(settlement.verdict)
        sums = self._of(fact, price_id, billed.currency or "", str(settlement.state), billed.flags, verdict)
        prompt, cached = usage.prompt_tokens or 0, usage.cached_tokens
        sums.requests += 1
        sums.prompt_tokens += prompt
        sums.output_tokens += usage.output_tokens or 0
        sums.cache_write_tokens += usage.cache_write_tokens or 0
        sums.reasoning_tokens += usage.reasoning_tokens or 0
        sums.expected_cached_tokens += settlement.expected_cached_tokens or 0
        sums.discounted_tokens += charge.discounted_tokens or 0
        if cached is not None:
            sums.cached_tokens += cached
            if _ESTIMATED not in billed.flags:
                sums.reported_prompt_tokens += prompt
                sums.reported_cached_tokens += cached
        sums.full_pico += charge.full_pico or 0
        sums.list_pico += charge.list_pico or 0
        if charge.charged_pico is None:
            sums.unknown_amounts += 1
        else:
            sums.charged_pico += charge.charged_pico
        sums.prefill_s += settlement.prefill_s or 0.0
        sums.decode_s += settlement.decode_s or 0.0

    def rows(self, owner_id: str) -> Iterator[Row]:
        """Rows of `schema.usage_quarters` to be added to those that are there, in the order of their keys."""
        for (quarter_us, *keys), sums in sorted(self._sums.items()):
            yield (quarter_us, owner_id, group_id(*keys), *keys, *_columns(sums))

    def _of(self, fact: Fact, price_id: str, currency: str, state: str, flags: str, verdict: str) -> _Sums:
        quarter_us = fact.opened_at_us - fact.opened_at_us % QUARTER_US
        tags = fact.tags or ""
        key = (quarter_us, fact.tenant_id, fact.key_id, fact.model, tags, price_id, currency, state, flags, verdict)
        found = self._sums.get(key)
        if found is None:
            found = self._sums[key] = _Sums()
        return found


def _columns(sums: _Sums) -> Row:
    return (
        sums.requests,
        sums.prompt_tokens,
        sums.cached_tokens,
        sums.discounted_tokens,
        sums.cache_write_tokens,
        sums.output_tokens,
        sums.reasoning_tokens,
        sums.expected_cached_tokens,
        sums.reported_prompt_tokens,
        sums.reported_cached_tokens,
        *divmod(sums.full_pico, PICO),
        *divmod(sums.charged_pico, PICO),
        *divmod(sums.list_pico, PICO),
        sums.unknown_amounts,
        sums.prefill_s,
        sums.decode_s,
    )


@lru_cache(maxsize=4096)
def group_id(*keys: str) -> str:
    """A short name for a set of `KEYS`: they may be longer than a database takes into an index."""
    return blake2b("\0".join(keys).encode(errors="surrogatepass"), digest_size=16).hexdigest()


assert [*usage_quarters.columns.keys()][3:12] == list(KEYS)
