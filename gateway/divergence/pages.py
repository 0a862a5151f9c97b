"""`/admin/lint`: what live traffic shows of the prompts' layout, with what it costs; for admins alone.

    findings of this process --(of all workers: added up)--> rows with rule, place, cause, tokens and money a day, fix

No text of a prompt: rules, places, offsets, numbers, and the names of tenants, models and routes.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query

from billing.money import PICO, amount_text
from billing.prices.book import Prices
from gateway.divergence.findings import LiveFinding, findings_of
from gateway.divergence.profiles import Profile
from gateway.divergence.types import segment_text
from gateway.divergence.watching import Watch

MOST_FINDINGS: Final = 1000
MOST_CALLS: Final = 200
"""On a page."""
LINT_PATH: Final = "/admin/lint"
_ADDED: Final = ("requests", "of_requests", "lost_tokens", "lost_tokens_a_day")
_LEAST: Final = ("first_seen", "first_token", "first_character")
_MOST: Final = ("last_seen", "last_token", "last_character")
_NAME: Final = ("rule", "tenant", "model", "route", "place")


def lint_router(watch: Watch, prices: Prices, wall: Callable[[], datetime]) -> APIRouter:
    """The path `/admin/lint`."""
    router = APIRouter()

    @router.get(LINT_PATH)
    async def findings(
        tenant: Annotated[str | None, Query(description="Of this tenant alone.")] = None,
        model: Annotated[str | None, Query(description="Of this model alone.")] = None,
    ) -> dict[str, object]:
        """Where prompts part from earlier ones although most of what follows is the same; dearest first."""
        now = wall()
        found = [
            one
            for one in findings_of(watch.signs(), now.timestamp())
            if (tenant is None or one.tenant == tenant) and (model is None or one.model == model)
        ]
        return {
            "as_of": now.isoformat(),
            "requests": watch.requests,
            "kinds_of_calls": watch.kinds_of_calls,
            "findings": finding_rows(found[:MOST_FINDINGS], prices, now),
            "calls": [
                row
                for row in call_rows(watch.profiles())
                if tenant in (None, row["tenant"]) and model in (None, row["model"])
            ][:MOST_CALLS],
        }

    return router


def finding_rows(findings: Iterable[LiveFinding], prices: Prices, now: datetime) -> list[dict[str, object]]:
    """Findings as plain data. `money_a_day` is what the lost tokens would have cost less if they had been cached, by
    the prices that hold now; null where the model has no price, or none for cached tokens."""
    return [_row(one, prices, now) for one in findings]


def call_rows(profiles: Iterable[Profile]) -> list[dict[str, Any]]:
    """What calls of each tenant, model and route part in, most requests first; harmless or not."""
    return _calls(
        {
            "tenant": one.name.tenant,
            "model": one.name.model,
            "route": one.name.route,
            "requests": one.requests,
            "begun": one.begun,
            "parted_at_tokens": {str(tokens): count for tokens, count in one.parted_at().items()},
            "parted_in": _parted_in(one),
        }
        for one in profiles
    )


def _parted_in(profile: Profile) -> dict[str, int]:
    found = Counter[str]()
    for sign in profile.signs():
        found[segment_text(sign.change, sign.segment, None)] += sign.requests
    return dict(found)


def lint_page(pages: Sequence[Mapping[str, Any]]) -> dict[str, object]:
    """The pages of several workers as one: the same finding of several is one, and what they counted is added."""
    found: dict[tuple[object, ...], dict[str, Any]] = {}
    for page in pages:
        for row in page["findings"]:
            name = tuple(row[key] for key in _NAME)
            found[name] = _joined(found[name], row) if name in found else dict(row)
    rows = sorted(found.values(), key=lambda row: -row["lost_tokens_a_day"])
    added = {name: sum(page[name] for page in pages) for name in ("requests", "kinds_of_calls")}
    calls = _calls(row for page in pages for row in page["calls"])[:MOST_CALLS]
    as_of = max(page["as_of"] for page in pages)
    return {"as_of": as_of, **added, "findings": rows[:MOST_FINDINGS], "calls": calls}


def _calls(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for row in rows:
        name = row["tenant"], row["model"], row["route"]
        other = found.get(name)
        if other is None:
            found[name] = row
            continue
        added = {key: other[key] + row[key] for key in ("requests", "begun")}
        counts = {key: dict(Counter(other[key]) + Counter(row[key])) for key in ("parted_at_tokens", "parted_in")}
        found[name] = {**other, **added, **counts}
    return sorted(found.values(), key=lambda row: -row["requests"])


def _row(one: LiveFinding, prices: Prices, now: datetime) -> dict[str, object]:
    rule, a_day = one.rule, round(one.lost_tokens_a_day)
    price = prices.quote(one.model, one.tenant, now).price
    cached_pico = None if price is None else price.cached_input_pico
    money = None if price is None or cached_pico is None else amount_text(a_day * (price.input_pico - cached_pico))
    tokens, characters = one.tokens or (None, None), one.characters or (None, None)
    return {
        "rule": rule.id,
        "level": rule.level.name.lower(),
        "what": rule.what,
        "why": rule.why,
        "fix": rule.fix,
        "safety": rule.safety.value,
        "tenant": one.tenant,
        "model": one.model,
        "route": one.route,
        "place": one.place,
        "cause": None if one.cause is None else one.cause.value,
        "causes": {cause.value: count for cause, count in sorted(one.causes.items())},
        "first_token": tokens[0],
        "last_token": tokens[1],
        "first_character": characters[0],
        "last_character": characters[1],
        "variants": one.variants,
        "requests": one.requests,
        "of_requests": one.of,
        "lost_tokens": one.lost_tokens,
        "lost_tokens_a_day": a_day,
        "money_a_day": money,
        "currency": None if money is None or price is None else price.currency,
        "first_seen": _when(one.first_s),
        "last_seen": _when(one.last_s),
    }


def _joined(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(one)
    found |= {name: one[name] + other[name] for name in _ADDED}
    found |= {name: _of(min, one[name], other[name]) for name in _LEAST}
    found |= {name: _of(max, one[name], other[name]) for name in _MOST}
    causes = (one["causes"], other["causes"])
    found["causes"] = {name: sum(each.get(name, 0) for each in causes) for name in sorted({*causes[0], *causes[1]})}
    found["cause"] = max(found["causes"], key=found["causes"].__getitem__, default=one["cause"] or other["cause"])
    found["variants"] = _of(sum, one["variants"], other["variants"])
    amounts = [Decimal(each["money_a_day"]) for each in (one, other) if each["money_a_day"] is not None]
    found["money_a_day"] = amount_text(int(sum(amounts) * PICO)) if amounts else None
    return found


def _of(choose: Callable[[Sequence[Any]], Any], one: Any, other: Any) -> Any:
    """Of two values that may be unknown."""
    if one is None or other is None:
        return other if one is None else one
    return choose((one, other))


def _when(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="seconds")
