"""What clients saw, held against what the ledgers hold: to the request, and to the token. Pure.

client saw          the ledgers have
served         <->  one row, complete, of the same usage and price, in the ledger of who answered
cut            <->  one row: partial (its engine died), interrupted (its gateway died), or complete, where the
                    gateway died after it had written the bill and before the end was out
nothing, tried ->   at most one row for each try, and no bill: interrupted, failed or rejected
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bench.mortal_fleet.types import Counts, Outcome, Row, Seen

_BILLED: Final = frozenset({"complete", "partial"})
_AFTER_A_CUT: Final = frozenset({"complete", "partial", "interrupted"})
_MOST_TOLD: Final = 20


@dataclass(frozen=True, slots=True)
class Audit:
    """The comparison. `cut` and `unseen` count rows by state: of answers that were cut, and of tries that nobody
    got anything from. `broken` says what does not agree, in words; empty is exact."""

    rows: int
    served: int
    agreeing: int
    cut: Mapping[str, int]
    unseen: Mapping[str, int]
    charged_pico: int
    broken: tuple[str, ...]

    def row(self) -> dict[str, object]:
        """For the result file."""
        return {
            "ledger_rows": self.rows,
            "served": self.served,
            "served_and_exact_in_the_ledger": self.agreeing,
            "cut_by_state": dict(self.cut),
            "unseen_by_state": dict(self.unseen),
            "charged_pico": self.charged_pico,
            "broken": list(self.broken[:_MOST_TOLD]),
            "broken_count": len(self.broken),
        }


def audit(seen: Sequence[Seen], rows: Sequence[Row], price_pico: Callable[[Counts], int]) -> Audit:
    """Hold all that clients saw against all rows of all ledgers. O(seen + rows)."""
    by_id: dict[str, list[Row]] = {}
    for row in rows:
        by_id.setdefault(row.request_id, []).append(row)
    broken = [f"{name} is in {len(found)} rows" for name, found in by_id.items() if len(found) > 1]
    broken += [f"{row.request_id} is open for ever" for row in rows if row.state is None]
    served = [one for one in seen if one.outcome is Outcome.SERVED]
    faults = [fault for one in served if (fault := _fault(one, by_id, price_pico)) is not None]
    cut = [(one, _state(one, by_id)) for one in seen if one.outcome is Outcome.CUT]
    broken += [f"{one.name} was cut, and its row is {state}" for one, state in cut if state not in _AFTER_A_CUT]
    unseen = _unseen(seen, rows)
    broken += faults + [f"{row.request_id} is billed, {row.state}, and nobody saw it" for row in unseen if _billed(row)]
    tries = sum(one.retries + (one.request_id is None) for one in seen)
    if len(unseen) > tries:
        broken.append(f"{len(unseen)} rows belong to nobody, and only {tries} tries ended without a word")
    return Audit(
        rows=len(rows),
        served=len(served),
        agreeing=len(served) - len(faults),
        cut=Counter(str(state) for _, state in cut),
        unseen=Counter(str(row.state) for row in unseen),
        charged_pico=sum(row.charged_pico or 0 for row in rows),
        broken=tuple(broken),
    )


def _fault(one: Seen, by_id: Mapping[str, Sequence[Row]], price_pico: Callable[[Counts], int]) -> str | None:
    """What is wrong with the row of an answer that came whole."""
    found = by_id.get(one.request_id or "", ())
    if not found:
        return f"{one.name} was served, and has no row"
    row = found[0]
    if row.ledger != one.replica:
        return f"{one.name} was served by {one.replica}, and is in the ledger of {row.ledger}"
    if row.state != "complete":
        return f"{one.name} was served, and its row is {row.state}"
    if row.usage != one.usage:
        return f"{one.name} used {one.usage}, and its row says {row.usage}"
    if row.expected_tokens != one.expected_tokens:
        return f"{one.name} was told {one.expected_tokens} expected tokens, and its row says {row.expected_tokens}"
    if row.charged_pico != price_pico(one.usage):
        return f"{one.name} costs {price_pico(one.usage)}, and was billed {row.charged_pico}"
    return None


def _state(one: Seen, by_id: Mapping[str, Sequence[Row]]) -> str | None:
    found = by_id.get(one.request_id or "", ())
    return found[0].state if found else None


def _unseen(seen: Sequence[Seen], rows: Sequence[Row]) -> list[Row]:
    known = {one.request_id for one in seen}
    return [row for row in rows if row.request_id not in known]


def _billed(row: Row) -> bool:
    return row.state in _BILLED or bool(row.charged_pico)
