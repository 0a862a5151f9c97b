"""Credits for misses that our own routing caused: what the tenant would have saved, given back by a row of its own.

    settlement   routed_elsewhere:960, fresh 1,000 at 3.00, cached rate 0.30   -->   credit 960 x (3.00 - 0.30)

The request is billed as it was computed; the credit counts in the period in which it is written. It follows from the
settlement's own rates, and its id from the request's: written twice, it is there once.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, RowMapping, select

from billing.counting import counted
from billing.money import joined_pico
from billing.schema import corrections, requests, settlements
from billing.types import Correction, CorrectionKind
from billing.verification.verdicts import Miss, MissReason

_OWN_MISS: Final = f"{MissReason.ROUTED_ELSEWHERE.value}:%"
_PREFIX: Final = "own-miss-"
_r, _s, _c = requests.c, settlements.c, corrections.c


@dataclass(frozen=True, slots=True)
class OwnMiss:
    """A request that could have had `tokens` more of its prompt cached where else we could have sent it.

    `pico` is what that is worth by the rates of its settlement; 0 where the price has no cached rate, or it is unknown.
    """

    request_id: str
    tenant_id: str
    key_id: str
    model: str
    currency: str | None
    tokens: int
    pico: int
    credited: bool

    def credit(self, made_at: datetime) -> Correction | None:
        """The row that gives it back; None where it is worth nothing."""
        if not self.pico or self.currency is None:
            return None
        return Correction(
            correction_id=correction_id(self.request_id),
            made_at=made_at,
            request_id=self.request_id,
            tenant_id=self.tenant_id,
            key_id=self.key_id,
            model=self.model,
            kind=CorrectionKind.CREDIT,
            reason=f"{counted(self.tokens, 'token')} of the prompt had been cached at another endpoint "
            "than the one it was sent to",
            currency=self.currency,
            full_pico=0,
            charged_pico=-self.pico,
        )


def correction_id(request_id: str) -> str:
    """Of the credit for a request: always the same."""
    return _PREFIX + request_id


def own_misses(connection: Connection, from_us: int, to_us: int) -> Iterator[OwnMiss]:
    """Those of the requests that came in within [from, to), oldest first, credited or not."""
    asked = (
        select(
            _r.request_id,
            _r.tenant_id,
            _r.key_id,
            _r.model,
            _s.currency,
            _s.miss_reason,
            _s.prompt_tokens,
            _s.cached_tokens,
            _s.cache_write_tokens,
            _s.input_pico,
            _s.cached_input_pico,
            _s.cache_write_pico,
            _s.charged_units,
            _s.charged_pico,
            _c.correction_id,
        )
        .select_from(requests.join(settlements, _s.request_id == _r.request_id))
        .outerjoin(corrections, _c.correction_id == _PREFIX + _r.request_id)
        .where(_r.opened_at_us >= from_us, _r.opened_at_us < to_us, _s.miss_reason.like(_OWN_MISS))
        .order_by(_r.opened_at_us, _r.request_id)
    )
    for row in connection.execute(asked).mappings():
        yield _own_miss(row)


def _own_miss(row: RowMapping) -> OwnMiss:
    tokens = Miss.read(row["miss_reason"]).number or 0
    return OwnMiss(
        request_id=row["request_id"],
        tenant_id=row["tenant_id"],
        key_id=row["key_id"],
        model=row["model"],
        currency=row["currency"],
        tokens=tokens,
        pico=worth_pico(row, tokens),
        credited=row["correction_id"] is not None,
    )


def worth_pico(row: RowMapping | Mapping[str, Any], tokens: int) -> int:
    """What a hit of `tokens` would have saved in a settlement, by its row, in pico-units.

    Never more than was charged for the request, nor for more tokens than were computed in it.

    What was written into the cache comes first: those are the whole blocks, as is what another endpoint had.
    """
    rate, cached_rate, prompt = row["input_pico"], row["cached_input_pico"], row["prompt_tokens"]
    if rate is None or cached_rate is None or prompt is None or row["charged_units"] is None:
        return 0
    written = min(tokens, row["cache_write_tokens"] or 0)
    fresh = min(tokens, prompt - (row["cached_tokens"] or 0)) - written
    write_rate = rate if row["cache_write_pico"] is None else row["cache_write_pico"]
    worth: int = written * (write_rate - cached_rate) + fresh * (rate - cached_rate)
    return max(min(worth, joined_pico(row["charged_units"], row["charged_pico"])), 0)
