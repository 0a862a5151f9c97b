"""A verification for eyes (tables) and for programs (JSON)."""

import json
from collections.abc import Iterator

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from billing.counting import counted
from billing.money import amount_text
from billing.types import Verdict
from billing.verification.reconciling import Span, SpanStatus
from billing.verification.report import EndpointCheck, Verification
from billing.when import from_us

_NONE = "–"
_MOST_SPANS_SHOWN = 20
_WORTH_SHOWING = (SpanStatus.OVER_REPORTED, SpanStatus.UNDER_REPORTED)


def render_verification(found: Verification) -> list[Table]:
    """Endpoints, misses, and the spans that speak against an engine's reports; tables without rows are left out."""
    tables = [_answers(found), _counters(found), _misses(found), _bad_spans(found)]
    return [table for table in tables if table.row_count]


def verification_lines(found: Verification) -> Iterator[str]:
    """What the tables come to, a line each."""
    for one in found.endpoints:
        if one.is_suspect:
            yield (
                f"{one.endpoint_id}: {one.disputed:,} of {one.answers:,} answers claim all but one prompt token as "
                f"cached where less than half was expected, as engines with split prefill wrongly do"
            )
    own = found.own_misses
    if own.requests:
        worth = ", ".join(f"{amount_text(pico)} {currency}" for currency, pico in sorted(own.worth_pico.items()))
        yield (
            f"our own routing missed {counted(own.tokens, 'cached token')} in {counted(own.requests, 'request')}, "
            f"worth {worth or 'nothing'}; credited: {own.credited:,}"
        )
    yield "sound: nothing speaks against the engines' reports" if found.is_sound else "not sound: see above"


def verification_json(found: Verification) -> dict[str, object]:
    """Plain data: tokens, and amounts as strings of decimals."""
    own = found.own_misses
    return {
        "from": found.from_.isoformat(),
        "to": found.to.isoformat(),
        "sound": found.is_sound,
        "endpoints": [_endpoint_json(one) for one in found.endpoints],
        "own_misses": {
            "requests": own.requests,
            "tokens": own.tokens,
            "credited": own.credited,
            "worth": {currency: amount_text(pico) for currency, pico in own.worth_pico.items()},
        },
    }


def render_verification_json(found: Verification) -> str:
    """The same as text."""
    return json.dumps(verification_json(found), indent=2)


def _answers(found: Verification) -> Table:
    table = _table("What the index says of the engines' reports, in answers")
    table.add_column("Endpoint", overflow="fold")
    for heading in ("Answers", "Verified", "Engine higher", "Engine lower", "Unreported", "Not compared", "Disputed"):
        table.add_column(heading, justify="right")
    for one in found.endpoints:
        counts = [one.verdicts[verdict.value] for verdict in Verdict]
        left = max(one.answers - sum(counts), 0)
        table.add_row(Text(one.endpoint_id), *(f"{count:,}" for count in (one.answers, *counts, left, one.disputed)))
    return table


def _counters(found: Verification) -> Table:
    table = _table("The ledger against the engines' own counters, in prompt tokens")
    table.add_column("Endpoint", overflow="fold")
    headings = ("Spans", "Counted", "Reported", "Coverage", "Hits counted", "Hits reported", "Difference")
    for heading in headings:
        table.add_column(heading, justify="right")
    table.add_column("Spans by what they show", overflow="fold")
    for one in found.endpoints:
        if not one.spans:
            continue
        counted, reported = one.compared
        coverage = _NONE if one.coverage is None else f"{one.coverage:.1%}"
        figures = (counted.cached, reported.cached, counted.cached - reported.cached)
        shows = ", ".join(f"{count:,} {status.value}" for status, count in sorted(one.statuses.items()))
        table.add_row(
            Text(one.endpoint_id),
            f"{len(one.spans):,}",
            f"{counted.prompt:,}",
            f"{reported.prompt:,}",
            coverage,
            *(f"{figure:,}" for figure in figures),
            shows,
        )
    return table


def _misses(found: Verification) -> Table:
    table = _table("Why prompts were not cached as far as they could have been")
    for heading in ("Endpoint", "Reason"):
        table.add_column(heading, overflow="fold")
    for heading in ("Requests", "Uncached tokens", "of them lost"):
        table.add_column(heading, justify="right")
    for one in found.endpoints:
        for reason, tally in sorted(one.misses.items(), key=lambda item: -item[1].uncached_tokens):
            figures = (tally.requests, tally.uncached_tokens, tally.lost_tokens)
            table.add_row(Text(one.endpoint_id), reason, *(f"{figure:,}" for figure in figures))
    return table


def _bad_spans(found: Verification) -> Table:
    table = _table("Spans that speak against an engine's reports")
    for heading in ("Endpoint", "From", "To", "Shows"):
        table.add_column(heading, overflow="fold")
    for heading in ("Hits counted", "Hits reported", "Across borders"):
        table.add_column(heading, justify="right")
    bad = [(one, span) for one in found.endpoints for span in one.spans if span.status in _WORTH_SHOWING]
    for one, span in bad[:_MOST_SPANS_SHOWN]:
        assert span.engine is not None, "else it could not be compared"
        across = span.early.cached if span.status is SpanStatus.OVER_REPORTED else span.late.cached
        times = (_when(span.start_us), _when(span.end_us))
        figures = (span.engine.cached, span.reported.cached, across)
        table.add_row(Text(one.endpoint_id), *times, span.status.value, *(f"{figure:,}" for figure in figures))
    return table


def _endpoint_json(one: EndpointCheck) -> dict[str, object]:
    counted, reported = one.compared
    return {
        "endpoint": one.endpoint_id,
        "answers": one.answers,
        "verdicts": {verdict.value: one.verdicts[verdict.value] for verdict in Verdict},
        "disputed": one.disputed,
        "split_prefill_suspected": one.is_suspect,
        "misses": {
            reason: {
                "requests": tally.requests,
                "uncached_tokens": tally.uncached_tokens,
                "lost_tokens": tally.lost_tokens,
            }
            for reason, tally in sorted(one.misses.items())
        },
        "coverage": one.coverage,
        "engine_query_tokens": counted.prompt,
        "engine_hit_tokens": counted.cached,
        "reported_prompt_tokens": reported.prompt,
        "reported_cached_tokens": reported.cached,
        "spans": [_span_json(span) for span in one.spans],
    }


def _span_json(span: Span) -> dict[str, object]:
    engine = span.engine
    return {
        "from": _when(span.start_us),
        "to": _when(span.end_us),
        "status": span.status.value,
        "engine_query_tokens": None if engine is None else engine.prompt,
        "engine_hit_tokens": None if engine is None else engine.cached,
        "reported_prompt_tokens": span.reported.prompt,
        "reported_cached_tokens": span.reported.cached,
        "early_cached_tokens": span.early.cached,
        "late_cached_tokens": span.late.cached,
        "requests": span.requests,
        "unreported_requests": span.untold,
    }


def _table(title: str) -> Table:
    return Table(title=title, box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)


def _when(at_us: int) -> str:
    return from_us(at_us).isoformat(timespec="milliseconds")
