"""What a period's bills rest on: verdicts and misses of its requests, and the ledger against the engines' counters.

    requests, settlements ──one pass──> verdicts, misses, doubts     by endpoint, of requests that came in within it
                        `──────────────> spans                       by endpoint, of answers that ended within it
    engine_samples ────────────────────> spans ──> matched? coverage: which share of the engine's prompts was ours

One pass over the rows, about 4 s a million; memory for the spans alone.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, RowMapping, func, select

from billing.older import column_in
from billing.reading import reading
from billing.reports.reading import need_rows
from billing.schema import attempts, engine_samples, requests, settlements
from billing.types import ANSWERED, PREFILLED, UsageFlag
from billing.verification.credits import OwnMiss, own_misses
from billing.verification.reconciling import Passage, Sample, Span, Spans, SpanStatus, Tokens
from billing.verification.verdicts import SUSPECT_AFTER, Miss
from billing.when import to_us

LONGEST_REQUEST: Final = timedelta(hours=1)
"""Requests that came in so long before the period are looked at, as they may have ended within it."""
_r, _s, _a, _e = requests.c, settlements.c, attempts.c, engine_samples.c


@dataclass(slots=True)
class MissTally:
    """Requests that missed for one reason, the prompt tokens that were not cached, and those that would have been."""

    requests: int = 0
    uncached_tokens: int = 0
    lost_tokens: int = 0


@dataclass(slots=True)
class EndpointCheck:
    """One endpoint in a period. `answers` were billed, `verdicts` and `misses` are theirs."""

    endpoint_id: str
    answers: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    disputed: int = 0
    misses: defaultdict[str, MissTally] = field(default_factory=lambda: defaultdict(MissTally))
    spans: list[Span] = field(default_factory=list)

    @property
    def is_suspect(self) -> bool:
        """Whether doubtful reports are a pattern: a share worth naming, not one in a thousand."""
        told = sum(self.verdicts.values())
        return self.disputed >= SUSPECT_AFTER and self.disputed * 10 >= told

    @property
    def statuses(self) -> Counter[SpanStatus]:
        """How many spans show what."""
        return Counter(span.status for span in self.spans)

    @property
    def compared(self) -> tuple[Tokens, Tokens]:
        """What the engine counted and what was reported, over the spans that can be compared."""
        counted, reported = Tokens(), Tokens()
        for span in self.spans:
            if span.engine is not None:
                counted.add(span.engine.cached, span.engine.prompt)
                reported.add(span.reported.cached, span.reported.prompt)
        return counted, reported

    @property
    def coverage(self) -> float | None:
        """Which share of the prompt tokens that the engine counted came through us; None where it counted none."""
        counted, reported = self.compared
        return min(reported.prompt / counted.prompt, 1.0) if counted.prompt else None


@dataclass(frozen=True, slots=True)
class OwnMisses:
    """Misses that our own routing caused, and what they are worth by currency, in pico-units."""

    requests: int
    tokens: int
    credited: int
    worth_pico: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Verification:
    """What was found in [from, to)."""

    from_: datetime
    to: datetime
    endpoints: Sequence[EndpointCheck]
    own_misses: OwnMisses

    @property
    def is_sound(self) -> bool:
        """Whether nothing speaks against the engines' reports."""
        return not any(
            one.is_suspect or one.statuses[SpanStatus.OVER_REPORTED] or one.statuses[SpanStatus.UNDER_REPORTED]
            for one in self.endpoints
        )


def verify(where: Path | str, from_: datetime, to: datetime) -> Verification:
    """Look through a period. O(rows of it). Raises `LedgerUnavailable`; `PeriodInvalid` where rows were archived."""
    with reading(where) as connection:
        return verification(connection, from_, to)


def verification(connection: Connection, from_: datetime, to: datetime) -> Verification:
    """The same over a connection."""
    need_rows(connection, to_us(from_), to_us(to))
    spans = {name: Spans(samples) for name, samples in _samples(connection, to_us(from_), to_us(to)).items()}
    checks: dict[str, EndpointCheck] = {name: EndpointCheck(name) for name in spans}
    for row in _rows(connection, to_us(from_ - LONGEST_REQUEST), to_us(to)):
        endpoint_id, prompt_at = row["endpoint_id"], row["prompt_at"]
        if endpoint_id is not None and row["opened_at_us"] >= to_us(from_):
            _tally(checks.setdefault(endpoint_id, EndpointCheck(endpoint_id)), row)
            _tally_prompt(checks.setdefault(prompt_at, EndpointCheck(prompt_at)), row)
        _place(spans, row)
    for row in _failed_attempts(connection, to_us(from_ - LONGEST_REQUEST), to_us(to)):
        if row["endpoint_id"] in spans:
            prompt = row["prompt_tokens_expected"] or 0
            spans[row["endpoint_id"]].may_have_seen(row["started_at_us"], row["ended_at_us"], prompt)
    for name, found in spans.items():
        checks[name].spans = found.all
    own = _own(own_misses(connection, to_us(from_), to_us(to)))
    return Verification(from_, to, [checks[name] for name in sorted(checks)], own)


def _samples(connection: Connection, from_us: int, to_us_: int) -> dict[str, list[Sample]]:
    found: dict[str, list[Sample]] = {}
    inside = (_e.sampled_at_us >= from_us, _e.sampled_at_us <= to_us_)
    for row in connection.execute(select(engine_samples).where(*inside)).mappings():
        sample = Sample(
            at_us=row["sampled_at_us"],
            owner_id=row["owner_id"],
            generation=row["generation"],
            hits=row["hit_tokens"],
            queries=row["query_tokens"],
        )
        found.setdefault(row["endpoint_id"], []).append(sample)
    return found


def _rows(connection: Connection, from_us: int, to_us_: int) -> Iterable[RowMapping]:
    prefill_endpoint_id, lost_tokens = (column_in(connection, one) for one in (_s.prefill_endpoint_id, _s.lost_tokens))
    columns = (
        _r.opened_at_us,
        _r.prompt_tokens_expected,
        _s.settled_at_us,
        _s.endpoint_id,
        func.coalesce(prefill_endpoint_id, _s.endpoint_id).label("prompt_at"),
        _s.prompt_tokens,
        _s.cached_tokens,
        _s.flags,
        _s.verdict,
        _s.miss_reason,
        lost_tokens.label("lost_tokens"),
    )
    asked = select(*columns).select_from(requests.outerjoin(settlements, _s.request_id == _r.request_id))
    found = connection.execution_options(yield_per=1000).execute(
        asked.where(_r.opened_at_us >= from_us, _r.opened_at_us < to_us_)
    )
    return found.mappings()


def _failed_attempts(connection: Connection, from_us: int, to_us_: int) -> Iterable[RowMapping]:
    """Attempts that came to nothing: what they were sent may have been counted all the same."""
    asked = (
        select(_a.endpoint_id, _a.started_at_us, _a.ended_at_us, _r.prompt_tokens_expected)
        .select_from(requests.join(attempts, _a.request_id == _r.request_id))
        .where(_r.opened_at_us >= from_us, _r.opened_at_us < to_us_, _a.outcome.not_in((ANSWERED, PREFILLED)))
    )
    return connection.execute(asked).mappings()


def _tally(check: EndpointCheck, row: RowMapping) -> None:
    flags = row["flags"].split(",")
    if UsageFlag.NOT_BILLABLE not in flags:
        check.answers += 1
    check.disputed += UsageFlag.DISPUTED in flags


def _tally_prompt(check: EndpointCheck, row: RowMapping) -> None:
    """What is about the prompt, of who computed it."""
    if row["verdict"] is not None:
        check.verdicts[row["verdict"]] += 1
    if row["miss_reason"] is not None:
        tally = check.misses[Miss.read(row["miss_reason"]).reason.value]
        tally.requests += 1
        tally.uncached_tokens += (row["prompt_tokens"] or 0) - (row["cached_tokens"] or 0)
        tally.lost_tokens += row["lost_tokens"] or 0


def _place(spans: Mapping[str, Spans], row: RowMapping) -> None:
    """Put a request into the spans of its endpoint; into those of all, where its endpoint is not known."""
    began_us, ended_us, prompt = row["opened_at_us"], row["settled_at_us"], row["prompt_tokens"]
    if row["endpoint_id"] is None:
        for each in spans.values():
            each.may_have_seen(began_us, ended_us, row["prompt_tokens_expected"] or 0)
        return
    if row["prompt_at"] != row["endpoint_id"] and row["endpoint_id"] in spans and ended_us is not None:
        spans[row["endpoint_id"]].may_have_seen(began_us, ended_us, prompt or 0)
    here = spans.get(row["prompt_at"])
    if here is None or ended_us is None:
        return
    cached = row["cached_tokens"]
    told = prompt is not None and cached is not None and UsageFlag.ESTIMATED not in row["flags"].split(",")
    known = prompt if prompt is not None else row["prompt_tokens_expected"] or 0
    here.add(Passage(began_us, ended_us, known, cached or 0, told))


def _own(found: Iterable[OwnMiss]) -> OwnMisses:
    number, tokens, credited = 0, 0, 0
    worth: Counter[str] = Counter()
    for miss in found:
        number += 1
        tokens += miss.tokens
        credited += miss.credited
        if miss.currency is not None:
            worth[miss.currency] += miss.pico
    return OwnMisses(number, tokens, credited, worth)
