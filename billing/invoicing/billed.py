"""What is billed already, so that nothing is billed twice and nothing that was given back comes again by itself. Pure.

invoices, and frozen drafts, which will be    --> count
invoices credited whole                       --> count until one takes their place: what a note gave back is billed
                                                  anew where that period is drafted again, and nowhere else
periods that are billed or closed, which may
  lie within each other                       --> spans that do not overlap
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from billing.invoicing.compose import LatePeriod
from billing.invoicing.credit_notes import is_credited_whole
from billing.invoicing.documents import Document, DocumentKind, InvoiceInvalid, LineKind, Period, UsageEntry
from billing.invoicing.minor_units import pico_of

Span = tuple[int, int]


def overlap(one: Span, other: Span) -> bool:
    """Whether two spans have an instant in common."""
    return one[0] < other[1] and other[0] < one[1]


def span_of(of: Period | UsageEntry) -> Span:
    """The instants of a period, or of what an invoice billed of one."""
    return of.start_us, of.end_us


def counted(issued: Sequence[Document], frozen: Sequence[Document], period: Period) -> list[Document]:
    """What counts as billed where `period` is drafted, of the documents of a tenant in the order of their numbers."""
    invoices = [one for one in issued if one.kind is DocumentKind.INVOICE]
    found = []
    for place, one in enumerate(invoices):
        notes = [note for note in issued if note.references == one.number]
        later = [*invoices[place + 1 :], *frozen]
        if is_credited_whole(one, notes) and (_in_place(one, period) or any(replaces(new, one) for new in later)):
            continue
        found.append(one)
    return [*found, *(one for one in frozen if not _in_place(one, period))]


def joined(spans: Iterable[Span]) -> list[Span]:
    """Spans that overlap made one; in order."""
    found: list[Span] = []
    for span in sorted(spans):
        if found and span[0] < found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], span[1])
        else:
            found.append(span)
    return found


def billed_within(documents: Iterable[Document], span: Span) -> list[UsageEntry]:
    """What documents have billed of a span, as of the whole of it. Raises `InvoiceInvalid` where it cannot be told."""
    found = []
    for document in documents:
        for entry in document.usage:
            if not overlap(span_of(entry), span):
                continue
            if entry.start_us < span[0] or entry.end_us > span[1]:
                name = document.number or "a draft of a closed period"
                raise InvoiceInvalid(
                    f"{name} has late usage of a period that is only in part in the one asked for: bill it whole"
                )
            found.append(replace(entry, start_us=span[0], end_us=span[1]))
    return found


def late_period(span: Span, late: Iterable[UsageEntry], documents: Sequence[Document]) -> LatePeriod:
    """What came late of a span, beside what documents have billed of it, and their corrections where they are of it."""
    corrected = (
        pico_of(line.exact)
        for document in documents
        if overlap(span_of(document.period), span)
        for line in document.lines
        if line.kind is LineKind.CORRECTION
    )
    return LatePeriod(*span, tuple(late), tuple(billed_within(documents, span)), sum(corrected))


def share(one: Document, other: Document) -> bool:
    """Whether two documents of other periods may bill the same, late usage or a correction."""
    if one.currency != other.currency or _in_place(one, other.period):
        return False
    spans = {span_of(entry) for entry in other.usage}
    late = any(overlap(span_of(entry), span) for entry in one.usage for span in spans)
    return late or not set(one.corrections).isdisjoint(other.corrections)


def replaces(new: Document, old: Document) -> bool:
    """Whether both bill a part of one period, in one currency."""
    return new.currency == old.currency and _in_place(new, old.period)


def _in_place(one: Document, period: Period) -> bool:
    return overlap(span_of(one.period), span_of(period))
