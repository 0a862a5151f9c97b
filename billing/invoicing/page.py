"""What stands on an invoice, word by word; HTML and PDF only place it. Pure: a document has one page.

Names are printed as they are given, less what no printer shows: control and direction characters, variation selectors.
"""

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from billing.invoicing.documents import CacheLine, Document, DocumentKind, DocumentLine, LineKind, Party
from billing.invoicing.minor_units import exact_text, minor_digits, money_text, pico_of

DRAFT_WORDS = "Not an invoice: no number is given yet."
_MOST_PRICES_LISTED = 6
_STATES = {
    ("complete", True): "complete",
    ("partial", True): "cut, billed for what was computed",
    ("complete", False): "complete, price or tokens unknown",
    ("partial", False): "cut, price or tokens unknown",
    ("failed", False): "failed",
    ("interrupted", False): "interrupted by the gateway, tokens unknown",
    ("rejected", False): "refused",
    ("in_flight", False): "not ended yet",
}


@dataclass(frozen=True, slots=True)
class Cells:
    """A row of a table; `is_strong` for sums, `note` is small print under its first cell."""

    cells: tuple[str, ...]
    note: str = ""
    is_strong: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """Rows under a heading of their own; empty where they need none."""

    title: str
    rows: tuple[Cells, ...]


@dataclass(frozen=True, slots=True)
class Grid:
    """A table: the first column is text, the others are figures."""

    title: str
    head: tuple[str, ...]
    groups: tuple[Group, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """All that is printed of a document."""

    title: str
    is_draft: bool
    facts: tuple[tuple[str, str], ...]
    seller: tuple[str, ...]
    buyer: tuple[str, ...]
    """The name first."""
    lines: Grid
    totals: tuple[Cells, ...]
    grids: tuple[Grid, ...]
    payment: tuple[str, ...]
    notes: tuple[str, ...]
    footer: str
    sha256: str

    def texts(self) -> Iterable[str]:
        """Every text of it, to see whether it can be printed."""
        yield from (self.title, self.footer, *self.seller, *self.buyer, *self.payment, *self.notes)
        for label, value in self.facts:
            yield from (label, value)
        for grid in (self.lines, *self.grids):
            yield from (grid.title, grid.note, *grid.head)
            for group in grid.groups:
                yield group.title
                for row in group.rows:
                    yield from (*row.cells, row.note)


def page_of(document: Document, sha256: str = "") -> Page:
    """The page of an issued document, or of a draft where it has no number."""
    is_draft = not document.number
    word = "Invoice" if document.kind is DocumentKind.INVOICE else "Credit note"
    return Page(
        title=f"Draft of an {word.lower()}" if is_draft else word,
        is_draft=is_draft,
        facts=tuple((label, shown(value)) for label, value in _facts(document) if value),
        seller=_party(document.seller),
        buyer=_party(document.buyer),
        lines=_lines(document),
        totals=tuple(_totals(document)),
        grids=tuple(_grids(document)),
        payment=tuple(map(shown, document.payment)) if document.kind is DocumentKind.INVOICE else (),
        notes=tuple(map(shown, document.notes)),
        footer=" · ".join(
            shown(one) for one in (document.seller.name, f"{word} {document.number or '(draft)'}") if one
        ),
        sha256=sha256,
    )


def shown(text: str) -> str:
    """A text without what is not seen but changes how the rest looks."""
    kept = (" " if letter in "\t\n\r" else letter for letter in unicodedata.normalize("NFC", text))
    return "".join(one for one in kept if unicodedata.category(one) not in ("Cc", "Cf", "Cs") and not _selects(one))


def _selects(letter: str) -> bool:
    return "\ufe00" <= letter <= "\ufe0f" or "\U000e0100" <= letter <= "\U000e01ef"


def _facts(document: Document) -> Iterable[tuple[str, str]]:
    period = document.period
    is_invoice = document.kind is DocumentKind.INVOICE
    yield "Number", document.number
    yield "Of invoice", document.references
    yield "Date of issue", document.issued_on
    yield "Due", document.due_on if is_invoice else ""
    yield "Period from", period.start_text
    yield "to, exclusive", period.end_text
    yield "Time zone", period.timezone
    yield "Currency", document.currency
    yield "Account", document.tenant_id
    prices = document.prices
    listed = ", ".join(prices) if len(prices) <= _MOST_PRICES_LISTED else f"{len(prices)}, named with their rows"
    yield ("Price version" if len(prices) == 1 else "Price versions"), listed


def _party(party: Party) -> tuple[str, ...]:
    facts = (f"{fact.label}: {fact.value}" for fact in party.facts)
    return tuple(shown(line) for line in (party.name, *party.address, *facts))


def _lines(document: Document) -> Grid:
    groups: dict[tuple[str, str], list[Cells]] = {}
    for line in document.lines:
        if line.kind is not LineKind.ROUNDING:
            groups.setdefault((line.group, line.price_id), []).append(_line(line, document))
    roundings = [_line(line, document) for line in document.lines if line.kind is LineKind.ROUNDING]
    found = [
        Group(shown(f"{name} (price {price})" if price else name), tuple(rows))
        for (name, price), rows in groups.items()
    ]
    if roundings:
        found.append(Group("", tuple(roundings)))
    if not found:
        words = "No usage in this period"
        found = [Group("", (Cells((words, "", "", "", money_text(0, document.currency))),))]
    return Grid(
        title="",
        head=("Description", "Quantity", f"{document.currency} per million", "Tax", f"Amount, {document.currency}"),
        groups=tuple(found),
    )


def _line(line: DocumentLine, document: Document) -> Cells:
    rate = next(tax.rate_percent for tax in document.taxes if tax.id == line.tax)
    quantity = "" if line.quantity is None else f"{line.quantity:,}"
    price = _grouped(line.unit_price, 2) if line.unit_price else ""
    amount = money_text(line.amount_minor, document.currency)
    return Cells((shown(line.description), quantity, price, f"{rate} %", amount), note=shown(line.source))


def _totals(document: Document) -> Iterable[Cells]:
    money = document.currency
    yield Cells(("Net amount", money_text(document.net_minor, money)))
    for tax in document.taxes:
        words = f"{tax.label} {tax.rate_percent} % on {money_text(tax.net_minor, money)}"
        yield Cells((shown(words), money_text(tax.tax_minor, money)), note=shown(tax.note))
    is_invoice = document.kind is DocumentKind.INVOICE
    words = "Total" if is_invoice and document.total_minor >= 0 else "Total, in your favour"
    yield Cells((words, f"{money} {money_text(document.total_minor, money)}"), is_strong=True)


def _grids(document: Document) -> Iterable[Grid]:
    if document.cache:
        yield _cache(document)
    if document.requests:
        rows = (
            Cells((_STATES.get((one.state, one.billed), one.state), f"{one.requests:,}", "yes" if one.billed else "no"))
            for one in document.requests
        )
        yield Grid("Requests", ("How they ended", "Requests", "In the amount"), (Group("", tuple(rows)),))
    if document.misses:
        missed = (Cells((shown(one.state.replace("_", " ")), f"{one.requests:,}")) for one in document.misses)
        yield Grid("Prompts that missed the cache", ("Why", "Requests"), (Group("", tuple(missed)),))


def _cache(document: Document) -> Grid:
    rows = [_cache_row(line.model, [line], document.currency) for line in document.cache]
    if len(rows) > 1:
        rows.append(_cache_row("All models", document.cache, document.currency, is_strong=True))
    verified = sum(line.verified_tokens for line in document.cache)
    disputed = sum(line.disputed_tokens for line in document.cache)
    cached = sum(line.cached_tokens for line in document.cache)
    checked = f" Of {cached:,} cached tokens, the gateway's own index verified {verified:,}; {disputed:,} are disputed."
    return Grid(
        title="What caching saved",
        head=("Model", "Prompt tokens", "Cached", "Hit share", "Reported", "At full price", "Charged", "Saved"),
        groups=(Group("", tuple(rows)),),
        note=(
            "Usage of this period, in exact amounts before tax, rounding, plans and corrections. Hit share: cached of"
            " the prompt tokens whose engine reported how many were cached; reported: their share of all prompt tokens."
            + (checked if verified or disputed else "")
        ),
    )


def _cache_row(name: str, lines: Sequence[CacheLine], currency: str, *, is_strong: bool = False) -> Cells:
    prompt = sum(line.prompt_tokens for line in lines)
    reported = sum(line.reported_prompt_tokens for line in lines)
    hit = sum(line.reported_cached_tokens for line in lines)
    places = minor_digits(currency)
    amounts = (
        exact_text(sum(pico_of(getattr(line, which)) for line in lines)) for which in ("full", "charged", "saved")
    )
    cells = (
        *(shown(name), f"{prompt:,}", f"{sum(line.cached_tokens for line in lines):,}"),
        *(_share(hit, reported), _share(reported, prompt)),
        *(_grouped(amount, places) for amount in amounts),
    )
    return Cells(cells, is_strong=is_strong)


def _share(part: int, whole: int) -> str:
    """Percent, rounded down: all is 100.0 % only where it is all. Of nothing it is unknown."""
    if not whole:
        return "unknown"
    tenths = 1000 * part // whole
    return f"{tenths // 10}.{tenths % 10} %"


def _grouped(exact: str, places: int) -> str:
    """An exact amount with its thousands apart and at least so many places."""
    whole, _, rest = exact.partition(".")
    sign, digits = ("-", whole[1:]) if whole.startswith("-") else ("", whole)
    rest = rest.ljust(places, "0")
    return f"{sign}{int(digits):,}{'.' if rest else ''}{rest}"
