"""Pages that say of all workers what one of them says of itself: plain data, merged. Pure.

Numbers that are counted here and there are added, shares are computed again from their sums, and of what is the same
for all the first word stands.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final

Page = Any
"""What a page is as JSON."""

MOST_DIFFERENCES: Final = 256
"""As many as one worker shows."""
_COUNTED: Final = frozenset({"in_flight_requests", "in_flight_uncached_tokens"})
_QUEUED: Final = ("queued_writes", "dropped_writes", "stand_in_matches")
_SHARES: Final[dict[str, Callable[[Mapping[str, Any]], float]]] = {
    "expected_share": lambda sums: sums["expected_tokens"],
    "reported_share": lambda sums: sums["reported_tokens"],
    "mean_absolute_error_percent": lambda sums: 100 * (sums["too_many_tokens"] + sums["too_few_tokens"]),
}
_NOT_READ: Final = "not_consumer"


def endpoints_page(pages: Sequence[Page]) -> Page:
    """Endpoints: what is in flight is added, and a speed is that of who has measured most of it."""
    by_id = [{row["id"]: row for row in page} for page in pages]
    return [_endpoint([rows[id_] for rows in by_id if id_ in rows]) for id_ in by_id[0]]


def _endpoint(rows: Sequence[Page]) -> Page:
    speeds = [row["speed"] for row in rows if row["speed"] is not None]
    added = {name: sum(row[name] for row in rows) for name in _COUNTED}
    return rows[0] | added | {"speed": max(speeds, key=itemgetter("samples"), default=None)}


def parity_page(pages: Sequence[Page]) -> Page:
    """Differences of all, newest first; a shape is degraded where any worker does not believe it."""
    degraded: dict[str, set[str]] = {}
    for page in pages:
        for model, shapes in page["degraded"].items():
            degraded.setdefault(model, set()).update(shapes)
    differences = sorted((one for page in pages for one in page["differences"]), key=itemgetter("at"), reverse=True)
    return {
        "degraded": {model: sorted(shapes) for model, shapes in sorted(degraded.items())},
        "differences": differences[:MOST_DIFFERENCES],
    }


def disaggregation_page(pages: Sequence[Page]) -> Page:
    """Who is set aside by any worker; seconds of a transfer as the one says that has seen most of them."""
    transfers: dict[str, Page] = {}
    for page in pages:
        for name, learned in page["transfers"].items():
            if name not in transfers or learned["samples"] > transfers[name]["samples"]:
                transfers[name] = learned
    pairs = {(pair["prefill"], pair["decode"]) for page in pages for pair in page["pairs_set_aside"]}
    return {
        "roles": pages[0]["roles"],
        "set_aside": sorted({one for page in pages for one in page["set_aside"]}),
        "pairs_set_aside": [{"prefill": one, "decode": other} for one, other in sorted(pairs)],
        "transfers": transfers,
    }


def index_page(pages: Sequence[Page]) -> Page:
    """The index is one; what each worker has queued and learned is added, and a feed is as who reads it says."""
    return {
        **pages[0],
        "degraded": next((page["degraded"] for page in pages if page["degraded"]), None),
        **{name: sum(page[name] for page in pages) for name in _QUEUED},
        "feeds": _feeds([page["feeds"] for page in pages]),
        "reliability": _reliability([page["reliability"] for page in pages]),
    }


def _feeds(tables: Sequence[Page]) -> Page:
    found: dict[tuple[str, int], Page] = {}
    for row in (row for table in tables for row in table):
        key = (row["endpoint_id"], row["rank"])
        if key not in found or found[key]["state"] == _NOT_READ:
            found[key] = row
    return [found[key] for key in sorted(found)]


def _reliability(tables: Sequence[Page]) -> Page:
    endpoints = _grouped((row for table in tables for row in table["endpoints"]), ("endpoint", "mode"), _account)
    survival = _grouped((row for table in tables for row in table["survival"]), ("variable", "above"), _bucket)
    overall = _account([table["overall"] for table in tables])
    return {**tables[0], "overall": overall, "endpoints": endpoints, "survival": survival}


def _grouped(rows: Iterable[Page], names: Sequence[str], together: Callable[[Sequence[Page]], Page]) -> list[Page]:
    """The rows of each key as one, in the order of the first of each."""
    groups: dict[tuple[Any, ...], list[Page]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in names), []).append(row)
    return [together(group) for group in groups.values()]


def _account(rows: Sequence[Page]) -> Page:
    return {
        **rows[0],
        "window": _sums([row["window"] for row in rows]),
        "total": _sums([row["total"] for row in rows]),
        "receipts": _added([row["receipts"] for row in rows]),
        "inferred_restarts": sum(row["inferred_restarts"] for row in rows),
    }


def _sums(rows: Sequence[Mapping[str, Any]]) -> Page:
    sums = _added([{name: value for name, value in row.items() if name not in _SHARES} for row in rows])
    prompt = sums["prompt_tokens"]
    shares = {name: part(sums) / prompt if prompt else None for name, part in _SHARES.items()}
    return {name: shares[name] if name in shares else sums[name] for name in rows[0]}


def _bucket(rows: Sequence[Page]) -> Page:
    """One bucket of survival; `predicted` is of the expected tokens, as `share` is."""
    counted = _added([{name: row[name] for name in ("matches", "expected_tokens", "reported_tokens")} for row in rows])
    expected = counted["expected_tokens"]
    predicted = sum(row["predicted"] * row["expected_tokens"] for row in rows)
    share = {"share": counted["reported_tokens"] / expected, "predicted": predicted / expected} if expected else {}
    present = sum(row["present"] for row in rows) / len(rows)
    return {**rows[0], **counted, **share, "present": present}


def _added(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {name: sum(row[name] for row in rows) for name in rows[0]}
