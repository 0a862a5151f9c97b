"""`/admin/fixes`: the rules, what shadows would gain, and both sides of comparisons beside each other."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from fastapi import APIRouter

from gateway.fixes.book import FixBook
from gateway.fixes.rules import Rule


def fix_router(rules: tuple[Rule, ...], book: FixBook) -> APIRouter:
    """The route under `/admin/fixes`; who uses it asks for a token."""
    router = APIRouter()

    @router.get("/admin/fixes")
    async def fixes() -> dict[str, object]:
        """Since the gateway started: what shadows measured, and both sides of each comparison, by tenant."""
        return {
            "rules": [_as_json(rule) for rule in rules],
            "shadow": shadow_rows(book.shadows()),
            "arms": arm_rows(book.arms()),
        }

    return router


def fixes_page(pages: Sequence[Any]) -> dict[str, object]:
    """What several workers say of themselves, added."""
    return {
        "rules": pages[0]["rules"],
        "shadow": shadow_rows(_added(pages, "shadow", ("tenant", "fixes"))),
        "arms": arm_rows(_added(pages, "arms", ("tenant", "fixes", "arm"))),
    }


def shadow_rows(counted: Iterable[Mapping[str, Any]]) -> list[dict[str, object]]:
    """What was counted, with its shares."""
    return [
        {
            **row,
            "cached_share": _share(row["cached_tokens"], row["prompt_tokens"]),
            "cached_share_fixed": _share(row["cached_tokens_fixed"], row["prompt_tokens"]),
        }
        for row in counted
    ]


def arm_rows(counted: Iterable[Mapping[str, Any]]) -> list[dict[str, object]]:
    """What was counted, with its hit share and the mean length of answers."""
    return [
        {
            **row,
            "hit_share": _share(row["cached_tokens"], row["prompt_tokens"]),
            "output_tokens_mean": _share(row["output_tokens"], row["requests"]),
        }
        for row in counted
    ]


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


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _as_json(rule: Rule) -> dict[str, object]:
    found = asdict(rule)
    return {name: sorted(value) if isinstance(value, frozenset) else value for name, value in found.items()}
