"""What clients saw, what passed between gateways and engines, and what the ledger has, held against each other. Pure.

    client              engine (on the wire)                      ledger
    served      <-->    the same bytes, to the last        <-->   one row, complete, of the engine's usage and its price
    cut         <-->    these bytes, and perhaps more      <-->   one row: partial, no more than was on the wire;
                                                                  interrupted (its gateway died); complete, where the
                                                                  gateway died after it had written the bill
    nothing             whatever was tried                 <-->   at most one row for each try, no bill without bytes

Each check gives sentences; a run is clean if there are none.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from bench.faults.judging import DISTURBING, World, could_be_served, is_explained
from bench.faults.types import Asked, Computed, Counts, Kind, Outcome, Record, Row, Try

BILLED: Final = frozenset({"complete", "partial"})
TOKEN: Final = "~"
"""Each token of an answer begins with it."""
_SETTLED_LATE_S: Final = 1.0
"""How long after an answer its gateway may still be writing the row."""


@dataclass(frozen=True, slots=True)
class Prices:
    """Pico-units a token."""

    input_pico: int
    cached_input_pico: int
    output_pico: int

    def of(self, usage: Counts) -> int:
        """Pico-units of an answer; cached tokens that nobody reported cost the full price."""
        cached = usage.cached_tokens or 0
        fresh = (usage.prompt_tokens or 0) - cached
        output = usage.output_tokens or 0
        return fresh * self.input_pico + cached * self.cached_input_pico + output * self.output_pico


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that there is to hold against each other. `left_over`: what was still reserved when all had ended; `leaked`:
    where a canary or a secret was found; `continues`: what one endpoint began may have been ended elsewhere."""

    asked: Sequence[Asked]
    computed: Sequence[Computed]
    rows: Sequence[Row]
    world: World
    prices: Prices
    records: Sequence[Record] = ()
    left_over: Sequence[str] = ()
    leaked: Sequence[str] = ()
    continues: bool = False


@dataclass(frozen=True, slots=True)
class Audit:
    """`totals`: by what must not be, the sentences that say where it was; `counts`: what there was in all."""

    totals: Mapping[str, Sequence[str]]
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_clean(self) -> bool:
        """Whether nothing was found."""
        return not any(self.totals.values())


@dataclass(frozen=True, slots=True)
class _Books:
    """The evidence by what it is looked up by."""

    evidence: Evidence
    exchanges: Mapping[str, Sequence[Computed]]
    rows: Mapping[str, Sequence[Row]]
    tries: Mapping[str, Try]
    """By the client's own name of them."""


def audit(evidence: Evidence) -> Audit:
    """Every check. O(asked + computed + rows), times the faults."""
    exchanges: dict[str, list[Computed]] = {}
    for one in evidence.computed:
        exchanges.setdefault(one.request_id, []).append(one)
    rows: dict[str, list[Row]] = {}
    for row in evidence.rows:
        rows.setdefault(row.request_id, []).append(row)
    tries = {one.id: one for asked in evidence.asked for one in asked.tries}
    books = _Books(evidence, exchanges, rows, tries)
    return Audit(
        totals={
            "requests that could have been served and were not": list(_unserved(books)),
            "answers cut without a fault where they came from": list(_cut_for_nothing(books)),
            "answers whose bytes are not the engine's": list(_altered(books)),
            "rows lost": list(_lost(books)),
            "rows doubled": list(_doubled(books)),
            "rows left open": [f"{row.request_id} is open for ever" for row in evidence.rows if row.state is None],
            "bills that are not what was computed": list(_misbilled(books)),
            "engines whose books are not what they said": list(_otherwise(books)),
            "reservations leaked": list(evidence.left_over),
            "prompts or secrets leaked": list(evidence.leaked),
        },
        counts=_counts(books),
    )


def _unserved(books: _Books) -> Iterator[str]:
    for asked in books.evidence.asked:
        if asked.outcome is Outcome.FAILED and could_be_served(asked, books.evidence.world):
            tries = "; ".join(f"{one.gateway}: {one.status or 'nothing'} {one.why[:160]}" for one in asked.tries)
            at_s, took_s = asked.began_s - books.evidence.world.epoch_s, asked.ended_s - asked.began_s
            yield f"{asked.id} ({asked.model}) at {at_s:.1f} s for {took_s:.1f} s: {tries}"


def _cut_for_nothing(books: _Books) -> Iterator[str]:
    for asked in books.evidence.asked:
        if asked.outcome is Outcome.CUT and not is_explained(asked, books.evidence.world.acted):
            last = asked.last
            assert last is not None
            at_s, why = last.ended_s - books.evidence.world.epoch_s, last.why or repr(last.body[-200:])
            yield f"{last.id}, {last.endpoint} by {last.gateway}, at {at_s:.1f} s: {why}"


def _altered(books: _Books) -> Iterator[str]:
    for asked in books.evidence.asked:
        last = asked.last
        if last is None or last.request_id is None or asked.outcome is Outcome.FAILED:
            continue
        is_served = asked.outcome is Outcome.SERVED
        sources = [one.body for one in books.exchanges.get(last.request_id, ()) if one.status == last.status]
        body = last.body if is_served else _whole_events(last.body)
        is_joined = any(_is_joined(books, row, last) for row in books.rows.get(last.request_id, ()))
        if not is_joined and not any(source == body if is_served else source.startswith(body) for source in sources):
            yield f"{last.id} got {len(last.body)} bytes that no engine sent ({[len(one) for one in sources]})"
        elif asked.due is not None and not (last.text == asked.due if is_served else asked.due.startswith(last.text)):
            yield f"{last.id} got another text than was due"


def _whole_events(body: bytes) -> bytes:
    """A stream that broke off up to its last whole event that is no error: what follows is the gateway's own word."""
    ends = body.rfind(b"\n\n") + 2
    events = body[:ends].split(b"\n\n")[:-1] if ends > 1 else []
    kept: list[bytes] = []
    for event in events:
        if b'"error"' in event or (kept and event.strip() == b"data: [DONE]"):
            break
        kept.append(event + b"\n\n")
    return b"".join(kept)


def _lost(books: _Books) -> Iterator[str]:
    for request_id, exchanges in books.exchanges.items():
        if request_id not in books.rows and not all(_died(books, one) for one in exchanges):
            yield f"{request_id} was sent to {exchanges[-1].endpoint} by {exchanges[-1].gateway}, and has no row"
    for asked in books.evidence.asked:
        for one in asked.tries:
            if one.status == 200 and one.request_id not in books.rows:
                yield f"{one.id} was answered by {one.gateway} as {one.request_id}, and has no row"
            elif one is asked.last and asked.outcome is Outcome.SERVED:
                yield from _not_whole(books, one)


def _not_whole(books: _Books, one: Try) -> Iterator[str]:
    """What is wrong with the row of an answer that came whole."""
    row = books.rows[one.request_id or ""][0]
    price = books.evidence.prices.of(one.usage)
    if row.state == "interrupted" and row.is_corrected and row.charged_pico == price:
        return  # its gateway was taken for dead, and came back: the bill was made good
    if row.state != "complete" and not (_is_joined(books, row, one) and row.charged_pico == price):
        yield f"{one.id} was served, and its row {row.request_id} is {row.state}"
    elif row.job != one.id or one.endpoint not in (row.endpoint, *(tried.endpoint for tried in row.attempts)):
        yield f"{one.id} was served by {one.endpoint}, and its row names {row.job} and {row.endpoint}"
    elif row.usage != one.usage:
        yield f"{one.id} was told {one.usage}, and its row says {row.usage}"


def _is_joined(books: _Books, row: Row, one: Try) -> bool:
    """Whether another endpoint, or the gateway itself where only the end was missing, ended an answer."""
    ended_here = books.evidence.continues and row.is_estimated and row.usage == one.usage
    return row.continuations > 0 or ended_here


def _died(books: _Books, one: Computed) -> bool:
    """Whether a gateway died while it waited for an answer: then it may not have written anything, nor passed it on."""
    return any(
        acted.fault.kind in (Kind.KILL, Kind.RESTART)
        and acted.fault.part == one.gateway
        and one.began_s <= acted.until_s
        and acted.from_s <= one.ended_s + _SETTLED_LATE_S
        for acted in books.evidence.world.acted
    )


def _doubled(books: _Books) -> Iterator[str]:
    for request_id, rows in books.rows.items():
        if len(rows) > 1:
            yield f"{request_id} is in {len(rows)} rows"
    jobs = Counter(row.job for row in books.evidence.rows if row.job is not None)
    for job, count in jobs.items():
        if count > 1:
            yield f"{job} was sent once, and is in {count} rows"
        if job not in books.tries:
            yield f"{job} is in a row, and nobody sent it"


def _misbilled(books: _Books) -> Iterator[str]:
    for row in books.evidence.rows:
        exchanges = books.exchanges.get(row.request_id, ())
        if row.state not in BILLED:
            if row.charged_pico and not row.is_corrected:
                yield f"{row.request_id} is {row.state}, and costs {row.charged_pico}"
        elif not exchanges:
            if not _was_on_its_way(books, row):
                yield f"{row.request_id} is {row.state}, and no engine was asked"
        elif row.state == "complete" and row.continuations:
            yield from _misjoined(books, row)
        elif row.state == "complete":
            yield from _miscounted(books, row, exchanges)
        elif (row.usage.output_tokens or 0) > sum(one.events for one in exchanges):
            yield f"{row.request_id} is billed {row.usage.output_tokens} tokens of {[one.events for one in exchanges]}"


def _was_on_its_way(books: _Books, row: Row) -> bool:
    """Whether a client left while its prompt was lost between gateway and engine: it is billed like any client that
    leaves, since nobody knows what was computed."""
    one = books.tries.get(row.job or "")
    return (
        one is not None
        and one.status is None
        and row.is_estimated
        and not row.usage.output_tokens
        and any(
            acted.fault.kind in DISTURBING
            and acted.fault.part in {tried.endpoint for tried in row.attempts}
            and one.began_s <= acted.until_s
            and acted.from_s <= one.ended_s
            for acted in books.evidence.world.acted
        )
    )


def _miscounted(books: _Books, row: Row, exchanges: Sequence[Computed]) -> Iterator[str]:
    told = [one.usage for one in exchanges if one.is_whole or one.usage != Counts()]
    if row.usage not in told:
        yield f"{row.request_id} is billed {row.usage}, and the engine said {told}"
    elif row.charged_pico != books.evidence.prices.of(row.usage):
        yield f"{row.request_id} costs {books.evidence.prices.of(row.usage)}, and is billed {row.charged_pico}"


def _otherwise(books: _Books) -> Iterator[str]:
    """Answers that came whole and are not so in their engine's own memory."""
    said = {(one.endpoint, one.answer_id): one for one in books.evidence.computed if one.answer_id and one.is_whole}
    for record in books.evidence.records:
        ids = (record.answer_id, f"chatcmpl-{record.answer_id}", f"cmpl-{record.answer_id}")
        one = next((said[record.endpoint, name] for name in ids if (record.endpoint, name) in said), None)
        if one is None or one.usage == Counts():
            continue
        kept = Counts(record.prompt_tokens, record.cached_tokens, record.output_tokens)
        if one.usage != kept and one.usage != replace(kept, cached_tokens=None):
            yield f"{record.endpoint} said {one.usage} of {one.request_id}, and remembers {kept}"


def _misjoined(books: _Books, row: Row) -> Iterator[str]:
    """What several endpoints wrote is billed once: what the client got of it, and the prompt."""
    one = books.tries.get(row.job or "")
    got = None if one is None or not one.is_whole else one.text.count(TOKEN)
    if got is not None and row.usage.output_tokens != got:
        yield f"{row.request_id} is billed {row.usage.output_tokens} tokens of several, and its client got {got}"
    elif row.charged_pico != books.evidence.prices.of(row.usage):
        yield f"{row.request_id} costs {books.evidence.prices.of(row.usage)}, and is billed {row.charged_pico}"


def _counts(books: _Books) -> dict[str, int]:
    evidence = books.evidence
    outcomes = Counter(str(one.outcome) for one in evidence.asked)
    states = Counter(f"rows {row.state}" for row in evidence.rows)
    failed = [one for one in evidence.asked if one.outcome is Outcome.FAILED]
    return {
        "requests": len(evidence.asked),
        **outcomes,
        "failed when nobody could serve": sum(not could_be_served(one, evidence.world) for one in failed),
        "tried again by the client": sum(len(one.tries) > 1 for one in evidence.asked),
        "exchanges with engines": len(evidence.computed),
        "requests that engines remember": len(evidence.records),
        "rows": len(evidence.rows),
        **states,
        "prompts billed that were lost on their way": sum(
            row.state in BILLED and row.request_id not in books.exchanges for row in evidence.rows
        ),
        "continued by another endpoint": sum(row.continuations > 0 for row in evidence.rows),
        "rows corrected": sum(row.is_corrected for row in evidence.rows),
        "bytes held against the engines'": sum(len(one.body) for asked in evidence.asked for one in asked.tries),
        "faults that disturb": sum(one.fault.kind in DISTURBING for one in evidence.world.acted),
    }
