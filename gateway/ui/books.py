"""The pages out of the ledger: what tenants used and saved. Read in threads, kept for some seconds."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from gateway.errors import BadRequest
from gateway.report_pages import Parameters, ReportPages
from gateway.ui.asked import Asked
from gateway.ui.kept import Kept
from gateway.ui.types import JsonPage

MOST_DAYS: Final = 31
MOST_ROWS: Final = 1000
_KEPT_S: Final = 10.0
_FAILED: Final = ("failed", "interrupted", "rejected")
_TOKENS: Final = ("prompt_tokens", "cached_tokens", "output_tokens", "unknown_amounts")
_MONEY: Final = {"charged": "amount_charged", "full_price": "amount_full", "saved": "amount_saved"}


class TenantBooks:
    """What tenants used and saved, as `prefixgate report` says it."""

    def __init__(self, reports: ReportPages, wall: Callable[[], datetime]) -> None:
        self._reports = reports
        self._wall = wall
        self._kept = Kept(_KEPT_S)

    @property
    def pages(self) -> Mapping[str, JsonPage]:
        """By name."""
        return {"tenants": JsonPage(self._tenants, frozenset({"days", "month"}))}

    async def _tenants(self, asked: Asked) -> Any:
        days, month = asked.text("days"), asked.text("month")
        if days is not None and month is not None:
            raise BadRequest("give days or month, not both")
        count = asked.number("days", 1, MOST_DAYS)

        async def read() -> Any:
            now = self._wall()
            period: Parameters = (
                {"from": [(now - timedelta(days=count)).isoformat()], "to": [now.isoformat()]}
                if month is None
                else {"month": [month]}
            )
            answer = await self._reports.of_operator({"by": ["tenant"], **period}, rows=False)
            return {"made_at": now.isoformat(), **await asyncio.to_thread(_read, answer.body)}

        return {"as_of": self._wall().isoformat(), **await self._kept.get(month or str(count), read)}


def _read(body: bytes) -> dict[str, Any]:
    """In a thread: of thousands of tenants it takes a while."""
    return tenants_page(msgspec.json.decode(body))


def tenants_page(report: Mapping[str, Any]) -> dict[str, Any]:
    """A report by tenant as the dashboard shows it, at most `MOST_ROWS`: those with the most prompt tokens. Corrections
    are rows of their own `kind`. Pure."""
    lines = sorted(report["lines"], key=lambda line: -(line.get("prompt_tokens") or 0))
    return {
        "from": report["from"],
        "to": report["to"],
        "tenants": [{"tenant": line["tenant"], "kind": line["line"], **_row(line)} for line in lines[:MOST_ROWS]],
        "left_out": max(len(lines) - MOST_ROWS, 0),
        "totals": [_row(total) for total in report["totals"]],
        "payable": report["payable"],
    }


def _row(line: Mapping[str, Any]) -> dict[str, Any]:
    prompt, cached = line.get("prompt_tokens"), line.get("cached_tokens")
    reported = line.get("reported_prompt_tokens")
    return {
        "currency": line["currency"],
        "requests": line["requests"],
        "in_flight": line["in_flight"],
        "failed": _sum(line[state] for state in _FAILED),
        **{name: line[name] for name in _TOKENS},
        "fresh_tokens": _less(prompt, cached),
        "unreported_prompt_tokens": _less(prompt, reported),
        "hit_share": line["hit_share"],
        **{name: line[column] for name, column in _MONEY.items()},
    }


def _sum(counts: Iterable[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _less(whole: int | None, part: int | None) -> int | None:
    return None if whole is None or part is None else whole - part
