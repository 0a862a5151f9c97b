"""`/admin/fixes`: the rules, what shadows would gain, and both sides of comparisons beside each other."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from fastapi import APIRouter, HTTPException

from billing import BillingError, LedgerUnavailable
from billing.reports.fix_arms import fix_arms
from billing.reports.query import Query
from billing.reports.reading import one_view
from gateway.fixes.book import FixBook
from gateway.fixes.rules import Rule
from gateway.recent_period import From, To, recent_period

_PATIENCE_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class FixPages:
    """What the page is put together from."""

    rules: tuple[Rule, ...]
    book: FixBook
    ledger: Path | str
    wall: Callable[[], datetime]


def fix_router(parts: FixPages) -> APIRouter:
    """The route under `/admin/fixes`; who uses it asks for a token."""
    router = APIRouter()
    one_at_a_time = asyncio.Lock()  # spans the reading: two of them would only take twice as long

    @router.get("/admin/fixes")
    async def fixes(from_: From = None, to: To = None) -> dict[str, object]:
        """Since the gateway started: what shadows measured, and both sides of each comparison, by tenant. Of a period,
        where one is asked for, both sides as the ledger has them."""
        found: dict[str, object] = {
            "rules": [_as_json(rule) for rule in parts.rules],
            "shadow": shadow_rows(parts.book.shadows()),
            "arms": arm_rows(parts.book.arms()),
        }
        if from_ is None and to is None:
            return found
        period = recent_period(parts.wall(), from_, to)
        try:
            query = Query(*period)
            async with one_at_a_time:
                return found | {"ledger": await asyncio.to_thread(ledger_rows, parts.ledger, query, _PATIENCE_S)}
        except LedgerUnavailable as error:
            raise HTTPException(503, str(error)) from None
        except BillingError as error:
            raise HTTPException(400, str(error)) from None

    return router


def fixes_page(pages: Sequence[Any]) -> dict[str, object]:
    """What several workers say of themselves, added."""
    return {
        "rules": pages[0]["rules"],
        "shadow": shadow_rows(_added(pages, "shadow", ("tenant", "fixes"))),
        "arms": arm_rows(_added(pages, "arms", ("tenant", "fixes", "arm"))),
        **({"ledger": pages[0]["ledger"]} if "ledger" in pages[0] else {}),
    }


def shadow_rows(counted: Iterable[Mapping[str, Any]]) -> list[dict[str, object]]:
    """What was counted, with its shares."""
    return [
        {
            **row,
            "cached_share": _ratio(row["cached_tokens"], row["prompt_tokens"]),
            "cached_share_fixed": _ratio(row["cached_tokens_fixed"], row["prompt_tokens"]),
        }
        for row in counted
    ]


def arm_rows(counted: Iterable[Mapping[str, Any]]) -> list[dict[str, object]]:
    """What was counted, with its hit share and the mean length of answers."""
    return [
        {
            **row,
            "hit_share": _ratio(row["cached_tokens"], row["prompt_tokens"]),
            "output_tokens_mean": _ratio(row["output_tokens"], row["counted_answers"]),
        }
        for row in counted
    ]


def ledger_rows(ledger: Path | str, query: Query, patience_s: float | None = None) -> list[dict[str, object]]:
    """Both sides of a period out of the ledger, as `arm_rows` has them. Blocks. Raises `BillingError`."""
    with one_view(ledger, patience_s) as connection:
        rows = [asdict(arm) for arm in fix_arms(connection, query)]
    return arm_rows([{"tenant": row.pop("tenant_id"), **row} for row in rows])


def _added(pages: Sequence[Any], table: str, names: tuple[str, ...]) -> list[dict[str, Any]]:
    """The rows of each key as one; shares are computed again by those who get them."""
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in (row for page in pages for row in page[table]):
        key = tuple(row[name] for name in names)
        sums = found.setdefault(key, dict(zip(names, key, strict=True)))
        for name, value in row.items():
            if isinstance(value, dict):
                sums[name] = dict(Counter(sums.get(name, {})) + Counter(value))
            elif isinstance(value, int):
                sums[name] = sums.get(name, 0) + value
    return [found[key] for key in sorted(found)]


def _ratio(count: int, per: int) -> float | None:
    return count / per if per else None


def _as_json(rule: Rule) -> dict[str, object]:
    found = asdict(rule)
    return {name: sorted(value) if isinstance(value, frozenset) else value for name, value in found.items()}
