"""When the requests of a period came, how long they took and how many tokens they had: read from rows, in order.

Nothing of who asked or what it cost is in it. What the ledger does not know is None.
"""

from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

from msgspec import Struct
from sqlalchemy import case, literal_column, select

from billing.reports.reading import need_rows, one_view
from billing.reports.sums import ROWS
from billing.schema import requests, settlements
from billing.types import SettlementState, UsageFlag
from billing.verification.columns import miss_kind

_PAGE_ROWS = 2000
_r = requests.c
_s = settlements.c
_estimated = _s.flags.like(literal_column(f"'%{UsageFlag.ESTIMATED.value}%'"))


class Timing(Struct, frozen=True, gc=False):
    """One request. `is_whole`: it was answered to its end; `is_over`: it is not in flight, and nobody died over it.

    `ttft_s` is None of an answer in one piece, of which only the end is known. `cached_tokens` are the engine's own
    word. `lost_tokens` would have been cached too but for `miss_reason`. `prefill_s` is what computing the prompt takes
    its endpoint alone, by the speed that was fitted to it.
    """

    opened_at_us: int
    endpoint_id: str | None
    is_whole: bool
    is_over: bool
    ttft_s: float | None
    duration_s: float | None
    prefill_s: float | None
    decode_s: float | None
    prompt_tokens: int | None
    cached_tokens: int | None
    output_tokens: int | None
    lost_tokens: int | None
    miss_reason: str | None


@dataclass(frozen=True, slots=True)
class TimingsOf:
    """Requests that were opened in [start_us, end_us), of one model or all."""

    start_us: int
    end_us: int
    model: str | None = None


def timings_of(where: Path | str, wanted: TimingsOf) -> Generator[Timing, None, None]:
    """By time of opening; lazy, the ledger is open until the iterator ends or is closed.

    Raises `LedgerUnavailable`, and `PeriodInvalid` where rows of the period were archived.
    """
    ttft_s = case((_r.stream, _s.ttft_s))
    cached = case((~_estimated, _s.cached_tokens))
    columns = (
        *(_r.opened_at_us, _s.endpoint_id, _s.state, ttft_s, _s.duration_s, _s.prefill_s, _s.decode_s),
        *(_s.prompt_tokens, cached, _s.output_tokens, _s.lost_tokens, miss_kind()),
    )
    chosen = [_r.opened_at_us >= wanted.start_us, _r.opened_at_us < wanted.end_us]
    if wanted.model is not None:
        chosen.append(_r.model == wanted.model)
    query = select(*columns).select_from(ROWS).where(*chosen).order_by(_r.opened_at_us, _r.request_id)
    with one_view(where) as connection:
        need_rows(connection, wanted.start_us, wanted.end_us)
        rows = connection.execution_options(yield_per=_PAGE_ROWS).execute(query)
        for opened_at_us, endpoint_id, state, *rest in rows:
            is_over = state not in (None, SettlementState.INTERRUPTED.value)
            yield Timing(opened_at_us, endpoint_id, state == SettlementState.COMPLETE.value, is_over, *rest)
