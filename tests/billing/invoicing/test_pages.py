"""What is printed: HTML read by a parser, PDF read by pypdf; all of it, nothing from elsewhere, the same each time."""

import io
import re
from dataclasses import replace
from decimal import Decimal
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pypdf import PdfReader

from billing.invoicing import (
    Document,
    Facts,
    InvoiceInvalid,
    Party,
    credit_all,
    document_json,
    document_of,
    draft,
    fonts,
    page_of,
    render_html,
)
from billing.invoicing.amounts import TaxRule
from billing.invoicing.documents import CacheLine, RequestCount, UsageEntry
from billing.invoicing.fonts import Fonts
from billing.invoicing.ledger_usage import Correction, PeriodUsage
from billing.invoicing.minor_units import exact_text
from billing.invoicing.page import DRAFT_WORDS, shown
from billing.invoicing.pdf_page import missing_letters, render_pdf
from tests.billing.invoicing.office import NOVEMBER, SELLER, paying

FONTS = Path(fonts.__file__).parent / "fonts"
DIGEST = "ab" * 32


class Read(HTMLParser):
    """Texts of a page by tag, and everything it would fetch or run."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.rows: list[list[str]] = []
        self.tags: set[str] = set()
        self.addresses: list[str] = []
        self._open: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.addresses += [f"{name}={value}" for name, value in attrs if name in ("src", "href", "action", "onload")]
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
        self._open.append(tag)

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] == "style":
            return
        self.texts.append(data)
        if self.rows and data.strip() and {"td", "th"} & set(self._open[-2:]):
            self.rows[-1][-1] += data.strip()

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:
            pass

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def entry(model: str = "llama", tokens: int = 1_000_000, rate: int = 10**6) -> UsageEntry:
    rates, counts = (rate, rate // 10, rate, rate * 4), (tokens, tokens * 2, 0, tokens // 3)
    amount = sum(count * price for count, price in zip(counts, rates, strict=True))
    return UsageEntry(
        NOVEMBER.start_us,
        NOVEMBER.end_us,
        model,
        f"{model}-2026",
        rates,
        10,
        *counts,
        full=exact_text(amount * 2),
        charged=exact_text(amount),
    )


def invoice(*entries: UsageEntry, number: str = "2026-000001", tenant: str = "acme", **changes: object) -> Document:
    seller = paying(SELLER, **changes)
    cache = tuple(
        CacheLine(one.model, 3_000_000, 2_000_000, 1_500_000, 500_000, 7, 3, one.full, one.charged, one.charged)
        for one in entries[:3]
    )
    usage = PeriodUsage(entries, cache, (RequestCount("complete", 10, True),), (RequestCount("evicted", 4, False),))
    found = draft(Facts(tenant, seller.currency, NOVEMBER, usage), seller)
    return replace(
        found, number=number, issued_on="2026-12-02" if number else "", due_on="2027-01-01" if number else ""
    )


def pdf_pages(document: Document) -> list[str]:
    reader = PdfReader(io.BytesIO(render_pdf(page_of(document, DIGEST))))
    return [page.extract_text() for page in reader.pages]


def squeezed(text: str) -> str:
    return re.sub(r"\s+", "", text)


def test_html_and_pdf_say_all_that_stands_on_the_page() -> None:
    page = page_of(invoice(entry(), entry("qwen")), DIGEST)
    html = squeezed(Read(render_html(page)).text)
    pdf = squeezed("".join(PdfReader(io.BytesIO(render_pdf(page))).pages[n].extract_text() for n in range(1)))
    for text in page.texts():
        assert squeezed(text) in html
    for text in (
        *page.seller,
        *page.buyer,
        *(row.cells[1] for row in page.totals),
        *(value for _, value in page.facts),
    ):
        assert squeezed(text) in pdf
    assert DIGEST in html
    assert DIGEST in pdf


def test_rows_as_printed_add_up_to_the_total_as_printed() -> None:
    document = invoice(*(entry(f"m{number}", 333_333 * number, 7_777_777) for number in range(1, 9)))
    read = Read(render_html(page_of(document)))
    amounts = [int(re.sub(r"[,.]", "", row[4])) for row in read.rows if len(row) == 5 and "Amount" not in row[4]]
    (net,) = [row[1] for row in read.rows if row and row[0] == "Net amount"]
    (tax,) = [row[1] for row in read.rows if row and row[0].startswith("VAT 20 %")]
    (total,) = [row[1] for row in read.rows if row and row[0] == "Total"]
    as_number = [int(re.sub(r"[^0-9-]", "", text)) for text in (net, tax, total)]
    assert sum(amounts) == as_number[0]
    assert as_number[0] + as_number[1] == as_number[2] == document.total_minor


def test_nothing_of_the_html_comes_from_elsewhere_or_runs() -> None:
    html = render_html(page_of(invoice(entry())))
    read = Read(html)
    assert not read.tags & {"script", "link", "img", "iframe", "object", "svg", "base", "form", "a"}
    assert read.addresses == []
    assert "url(" not in html
    assert "@import" not in html
    assert "default-src 'none'" in html


@pytest.mark.parametrize(
    "evil", ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "{{ 7 * 7 }}", "</style>"]
)
def test_names_are_text_and_never_html(evil: str) -> None:
    document = invoice(entry(evil), buyers={"acme": Party("acme", evil, (evil,))}, notes=(evil,), payment=(evil,))
    read = Read(render_html(page_of(document)))
    assert not read.tags & {"script", "img"}
    assert read.text.count(evil) >= 4
    assert squeezed(evil) in squeezed(pdf_pages(document)[0])


@given(st.text(max_size=40))
@settings(max_examples=40)
def test_any_name_is_printed_as_it_is_read(name: str) -> None:
    document = invoice(entry(), buyers={"acme": Party("acme", name)})
    page = page_of(document)
    assert squeezed(page.buyer[0]) in squeezed(Read(render_html(page)).text)
    assert render_pdf(page).startswith(b"%PDF")


def test_direction_and_control_characters_do_not_change_how_a_name_looks() -> None:
    assert shown("a\u202eb\u0000c\u200bd\ufe0e葛\U000e0100 e\tf") == "abcd葛 e f"


def test_japanese_names_are_in_the_pdf_as_text_and_embedded() -> None:
    names = ("髙島屋𠮷野家ホールディングス株式会社", "﨑山㈱・渡邉齋藤", "Žluťoučký kůň Ελλάδα Київ €")
    document = invoice(entry(), buyers={"acme": Party("acme", names[0], names[1:])})
    reader = PdfReader(io.BytesIO(render_pdf(page_of(document))))
    text = reader.pages[0].extract_text()
    for name in names:
        assert squeezed(name) in squeezed(text)
    resources: Any = reader.pages[0]["/Resources"]
    for font in resources["/Font"].values():
        assert "/FontFile2" in font["/FontDescriptor"]
    assert missing_letters(page_of(document)) == ""


@pytest.mark.parametrize("codec", ["euc_jis_2004", "cp932"])
def test_the_fonts_have_every_kanji_and_kana_of_the_japanese_standards(codec: str) -> None:
    letters: set[str] = set()
    for first in range(0x81, 0x100):
        for second in range(0x40, 0xFF):
            for code in (bytes([first, second]), bytes([0x8F, first, second])):
                try:
                    letters |= set(code.decode(codec))
                except UnicodeDecodeError:
                    continue
    written = {letter for letter in letters if letter >= "\u3000" and not "\ue000" <= letter <= "\uf8ff"}
    assert len(written) > 6_000
    assert Fonts().missing(written - set("⦅⦆")) == ""


def test_a_letter_that_no_font_has_is_marked_and_told() -> None:
    document = invoice(entry(), buyers={"acme": Party("acme", "한국 Ltd")})
    assert missing_letters(page_of(document)) == "국한"
    assert "〓〓" in pdf_pages(document)[0]


def test_a_font_of_the_seller_fills_in_what_ours_lack(tmp_path: Path) -> None:
    bad = tmp_path / "bad.ttf"
    bad.write_bytes(b"no font")
    with pytest.raises(InvoiceInvalid, match="must be TrueType"):
        Fonts([bad])
    copy = tmp_path / "Own.ttf"
    copy.write_bytes((FONTS / "NotoSans-Regular.ttf").read_bytes())
    assert Fonts([copy]).missing("ab") == ""


def test_two_hundred_rows_fill_pages_that_repeat_the_head_and_are_numbered() -> None:
    document = invoice(*(entry(f"model-{number:03d}") for number in range(70)))
    assert len(document.lines) >= 200
    pages = pdf_pages(document)
    assert len(pages) > 5
    for number, text in enumerate(pages, 1):
        assert f"Page {number} of {len(pages)}" in text
        assert "2026-000001" in text
    with_rows = [text for text in pages if "Output tokens" in text]
    assert all("USD per million" in text for text in with_rows)
    assert sum(text.count("Output tokens") for text in pages) == 70
    assert sum(text.count("Net amount") for text in pages) == 1


def test_long_names_stay_within_the_page() -> None:
    fonts = Fonts()
    for name in ("Without" * 60, "株式会社日本高度情報処理推進機構" * 12, "many words " * 40):
        lines = fonts.wrapped(name, 8.5, 200.0)
        assert squeezed("".join(lines)) == squeezed(name)
        assert all(fonts.width(line, 8.5) <= 200.0 for line in lines)
    assert not any(line.startswith("。") for line in fonts.wrapped("ありがとうございます。" * 30, 8.5, 200.0))


def test_an_invoice_without_usage_says_so_and_is_over_nothing() -> None:
    document = invoice()
    assert "No usage in this period" in pdf_pages(document)[0]
    assert "USD 0.00" in Read(render_html(page_of(document))).text


def test_a_draft_says_that_it_is_no_invoice() -> None:
    document = invoice(entry(), number="")
    for text in (pdf_pages(document)[0], Read(render_html(page_of(document))).text):
        assert "Draft of an invoice" in text
        assert DRAFT_WORDS in text


def test_a_credit_note_names_its_invoice_and_is_in_the_buyers_favour() -> None:
    note = replace(credit_all(invoice(entry()), [], "障害のため"), number="2026-000002", issued_on="2026-12-03")
    for text in (pdf_pages(note)[0], Read(render_html(page_of(note))).text):
        assert "Credit note" in text
        assert "2026-000001" in text
        assert "in your favour" in text
        assert "障害のため" in text
        assert "-2.53" in text


def test_an_unknown_hit_share_is_not_shown_as_nothing() -> None:
    found = invoice(entry())
    unreported = replace(found, cache=(replace(found.cache[0], reported_prompt_tokens=0, reported_cached_tokens=0),))
    rows = Read(render_html(page_of(unreported))).rows
    (row,) = [row for row in rows if len(row) == 8 and row[0] == "llama"]
    assert row[3:5] == ["unknown", "0.0 %"]


def test_a_document_printed_again_from_its_data_is_the_same_file() -> None:
    document = invoice(entry(), entry("qwen"))
    again = document_of(document_json(document))
    assert again == document
    assert render_html(page_of(again, DIGEST)) == render_html(page_of(document, DIGEST))
    assert render_pdf(page_of(again, DIGEST)) == render_pdf(page_of(document, DIGEST))


def test_data_that_are_no_document_are_refused() -> None:
    with pytest.raises(InvoiceInvalid, match="not what this program writes"):
        document_of('{"kind": "invoice"}')


def test_the_source_of_a_correction_the_note_of_a_tax_and_how_to_pay_are_printed() -> None:
    correction = Correction("c-1", 0, "01JREQUEST", "llama", "credit", "our miss", -(10**12))
    reverse = TaxRule("reverse", "VAT", Decimal(0), "Reverse charge, Article 196")
    seller = paying(taxes={"reverse": reverse}, default_tax="reverse", payment=("Bank 1234567",), notes=())
    facts = Facts("acme", "USD", NOVEMBER, PeriodUsage((entry(),)), corrections=(correction,))
    document = replace(draft(facts, seller), number="2026-000001")
    for text in (squeezed(pdf_pages(document)[0]), squeezed(Read(render_html(page_of(document))).text)):
        for wanted in ("c-1, request 01JREQUEST", "Credit: our miss", "Reverse charge, Article 196", "Bank 1234567"):
            assert squeezed(wanted) in text


def test_a_group_that_goes_on_over_the_page_says_so() -> None:
    entries = [replace(entry("one-model"), rates=(10**6 + n, 1, 1, 1)) for n in range(40)]
    usage = PeriodUsage(tuple(replace(one, charged="0") for one in entries))
    pages = pdf_pages(replace(draft(Facts("acme", "USD", NOVEMBER, usage), SELLER), number="1"))
    assert "one-model (price one-model-2026), continued" in pages[1]
    assert "continued" not in pages[0]


def test_figures_too_wide_for_their_columns_are_broken_and_not_cut() -> None:
    found = invoice(entry())
    wide = replace(found.cache[0], full="123456789012345678901234567890.123456789012", prompt_tokens=10**30)
    text = squeezed(pdf_pages(replace(found, cache=(wide,)))[0])
    assert "123,456,789,012,345,678,901,234,567,890.123456789012" in text


def test_notes_are_on_one_page_wherever_the_rows_end() -> None:
    for entries in range(1, 9):
        pages = pdf_pages(invoice(*(entry(f"model-{number}") for number in range(entries))))
        [notes] = [page for page in pages if "Notes" in page]
        assert "Each request is priced" in notes
        assert "are in a later one." in notes


def test_notes_longer_than_a_page_go_on_over_it() -> None:
    pages = pdf_pages(invoice(entry(), notes=tuple(f"note {number}." for number in range(90))))
    assert all(any(f"note {number}." in page for page in pages) for number in range(90))
    assert "note 0." in pages[0]
