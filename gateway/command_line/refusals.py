"""Why a command does not do what it was asked: a line on standard error, or an object there where JSON was asked for.

    prefixgate: there is no ledger at /srv/prefixgate.db
    {"error": {"code": "ledger_missing", "message": "there is no ledger at /srv/prefixgate.db", "help": "--ledger ..."}}

Exit codes are those of docs/cli.md: 1 what was asked for is not so, or could not be done; 2 it cannot be asked so.
"""

import errno
import json
import os
import re
from collections.abc import Sequence
from contextvars import ContextVar
from itertools import pairwise
from typing import Final

import typer

NOT_DONE: Final = 1
CANNOT_BE_USED: Final = 2
NOT_STARTED: Final = 3
INTERRUPTED: Final = 130
"""As shells have it: 128 and the number of the signal."""
OUTPUT_CLOSED: Final = 141
CODES: Final = {NOT_DONE: "not_done", CANNOT_BE_USED: "cannot_be_used", NOT_STARTED: "not_started"}
HELP: Final = {
    "admin_token_missing": "-c prefixgate.yaml, where that names it; `prefixgate init --admin` makes one",
    "admin_token_wrong": "the token is in the file that admin_token_file of the gateway's configuration names",
    "backends_missing": "prefixgate init --backend URL writes a configuration",
    "costs_file_missing": "docs/economics.md shows the file",
    "gateway_away": "start it with `prefixgate serve`, or name another one with --gateway URL",
    "invoicing_file_missing": "docs/invoices.md shows the file",
    "keys_file_missing": "any new name will do for `keys create`; docs/limits.md shows the file",
    "ledger_locked": "another process writes to it at the moment, such as a rebuild or a copy: wait for its end",
    "ledger_missing": "--ledger FILE or URL names another one, as do ledger.path and ledger.url in the configuration",
    "model_unknown": "of any other model `plan` takes the file that it was published with: --config-json config.json",
    "period_missing": "--month 2026-11, or --from 2026-11-01 --to 2026-11-08, whose end is exclusive",
    "prices_file_missing": "docs/prices.md shows the file",
}
"""What would help, by code, where the message itself does not say it."""

FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG})
"""Of errors of the operating system: nothing is wrong with what was asked for."""
_AS_JSON: ContextVar[bool] = ContextVar("errors are JSON", default=False)
_BY_WORDS: Final = {
    "there is no ledger at ": "ledger_missing",
    "database is locked": "ledger_locked",
    "which period? ": "period_missing",
}
"""Where one class of errors says what is helped in several ways."""
_WORD_STARTS: Final = re.compile(r"(?<!^)(?=[A-Z])")


def asks_for_json(arguments: Sequence[str]) -> bool:
    """Whether a command line asks for JSON, and so for errors in that form too."""
    given = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in given or "--format=json" in given or ("--format", "json") in pairwise(given)


def errors_are_json(*, wanted: bool) -> None:
    """Say for the command that runs in which form it refuses."""
    _AS_JSON.set(wanted)


def refused(why: str | Exception, exit_code: int = CANNOT_BE_USED, *, code: str | None = None) -> typer.Exit:
    """Says why a command does not do what it was asked, and is raised to end it.

    `code` names the kind for programs: the error's class where it is one, else by the exit code.
    """
    say(_words(why), code or (_code_of(why) if isinstance(why, Exception) else CODES.get(exit_code, "not_done")))
    return typer.Exit(exit_code)


def remark(what: str) -> None:
    """What a person should know of a result that looks like none; programs see it themselves."""
    if not _AS_JSON.get():
        typer.echo(f"prefixgate: {what}", err=True)


def say(message: str, code: str, hint: str | None = None) -> None:
    """Put an error on standard error, with what would help."""
    hint = hint or HELP.get(code)
    if _AS_JSON.get():
        typer.echo(json.dumps({"error": {"code": code, "message": message, "help": hint}}), err=True)
        return
    typer.echo(f"prefixgate: {message}", err=True)
    if hint is not None:
        typer.echo(f"  {hint}", err=True)


def _words(why: str | Exception) -> str:
    """Of the operating system's errors the file and the reason, without their number."""
    if isinstance(why, OSError) and why.filename is not None:
        return f"{os.fsdecode(why.filename)}: {why.strerror}"
    return str(why)


def _code_of(error: Exception) -> str:
    """`LedgerUnavailable` is `ledger_unavailable`; all that an operating system says is `file_unusable`."""
    if isinstance(error, OSError):
        return "file_unusable"
    for words, code in _BY_WORDS.items():
        if words in str(error):
            return code
    return _WORD_STARTS.sub("_", type(error).__name__).lower()
