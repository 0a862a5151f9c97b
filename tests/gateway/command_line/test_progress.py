"""Progress is seen on a terminal, and nowhere else."""

import io
import os
import pty
import sys

import pytest

from gateway.command_line.progress import progress


def shown_on_a_terminal(monkeypatch: pytest.MonkeyPatch, *, quiet: bool) -> str:
    terminal, end = pty.openpty()
    with os.fdopen(end, "w", encoding="utf-8") as screen:
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setattr(sys, "stderr", screen)
        with progress("files read", quiet=quiet) as told:
            told(1, None)
            told(1200, 4800)
        screen.write("end")
        screen.flush()
        printed = b""
        while not printed.endswith(b"end"):
            printed += os.read(terminal, 65536)
    os.close(terminal)
    return printed.decode()


def test_a_terminal_shows_what_is_done_of_how_much(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = shown_on_a_terminal(monkeypatch, quiet=False)
    assert "files read" in printed
    assert "1,200/4,800" in printed


def test_nothing_is_said_where_it_is_not_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown_on_a_terminal(monkeypatch, quiet=True) == "end"


def test_nothing_is_said_in_a_pipe_or_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    log = io.StringIO()
    monkeypatch.setattr(sys, "stderr", log)
    with progress("files read", quiet=False) as told:
        told(1, 2)
    assert log.getvalue() == ""
