"""Tables of commands: whole in a pipe, fewer columns on a narrow terminal, and what is left out is said."""

import io
import re

import pytest
from rich.table import Table
from rich.text import Text

from gateway.terminal_tables import show_tables

NAMES = ("tenant", "from", "requests", "charged", "notes")
ROW = ("acme", "2026-11-01T00:00:00Z", "1,234,567", "1,234.567891", "2 of three were interrupted by who asked")


class Terminal(io.StringIO):
    """A window."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")


def table() -> Table:
    made = Table(title="Usage")
    for name in NAMES:
        made.add_column(name, overflow="fold", justify="right" if name == "charged" else "left")
    made.add_row(*map(Text, ROW))
    made.add_section()
    made.add_row("Total", "", *ROW[2:], style="bold")
    return made


def printed(out: io.StringIO, width: int, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", str(width))
    show_tables(table(), spare=("requests", "from"), whole="--format csv", file=out)
    return re.sub(r"\x1b\[[\d;]*m", "", out.getvalue())


def test_a_pipe_has_every_column_however_wide_it_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    text = printed(io.StringIO(), 40, monkeypatch)
    assert all(f" {cell}" in f" {text}" for cell in (*NAMES, *ROW))
    assert "not shown" not in text


def test_a_wide_terminal_has_every_column(monkeypatch: pytest.MonkeyPatch) -> None:
    text = printed(Terminal(), 120, monkeypatch)
    assert all(f" {cell}" in f" {text}" for cell in (*NAMES, *ROW))
    assert "not shown" not in text


def test_a_narrow_terminal_leaves_out_no_more_than_it_must_and_says_what(monkeypatch: pytest.MonkeyPatch) -> None:
    text = printed(Terminal(), 60, monkeypatch)
    assert "not shown in 60 columns: 'requests'. A wider terminal shows them" in " ".join(text.split())
    assert ROW[1] in text
    assert ROW[2] not in text
    assert max(map(len, text.splitlines())) <= 60


def test_what_cannot_be_spared_is_shown_whole_in_any_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    text = printed(Terminal(), 20, monkeypatch)
    assert "'requests', 'from'" in " ".join(text.split())
    assert "1,234.567891" in text
    assert text.count("acme") == 1
