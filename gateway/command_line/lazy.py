"""A group of commands that are imported when they are called: help and completion cost no more than their names.

    prefixgate --help      names and sentences of the table; nothing is imported
    prefixgate cost ...    imports gateway.commands.cost, and what that needs

And the one place where what ends a command becomes an exit code: a refusal, wrong arguments, Ctrl-C, a pipe that was
closed, a full disk. No command lets any of these out as a traceback.
"""

import importlib
import io
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

from gateway.command_line.examples import ending_of
from gateway.command_line.refusals import (
    CANNOT_BE_USED,
    FULL,
    INTERRUPTED,
    NOT_DONE,
    OUTPUT_CLOSED,
    asks_for_json,
    errors_are_json,
    refused,
    say,
)

SERVES: Final = (["serve"], ["epp"])
"""Commands whose errors of the operating system are not the user's: they are raised, with their traceback."""


@dataclass(frozen=True, slots=True)
class Named:
    """A command as the help of all lists it: `place` is MODULE:ATTRIBUTE, `says` the first sentence of its help."""

    name: str
    place: str
    says: str
    panel: str


class LazyGroup(TyperGroup):
    """The commands of `table`. A subclass names them."""

    table: ClassVar[Sequence[Named]] = ()

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.rich_markup_mode = None
        self.commands = {named.name: _Waiting(named) for named in self.table}

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run what the arguments ask for, and leave with its exit code."""
        given = list(sys.argv[1:] if args is None else args)
        errors_are_json(wanted=asks_for_json(given))
        _print_what_can_be_printed()
        if not standalone_mode:
            return super().main(given, prog_name, complete_var, False, windows_expand_args, **extra)
        try:
            with _output(serves=given[:1] in SERVES):
                code = super().main(given, prog_name, complete_var, False, windows_expand_args, **extra)
        except typer.TyperException as error:
            _end_misused(error)
        except typer.Abort:
            sys.exit(INTERRUPTED)
        except typer.Exit as ended:
            code = ended.exit_code
        sys.exit(code if isinstance(code, int) else 0)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """A section for each heading."""
        for panel in dict.fromkeys(named.panel for named in self.table):
            with formatter.section(panel):
                formatter.write_dl([(named.name, named.says) for named in self.table if named.panel == panel])


class _Waiting(TyperCommand):
    """Stands for a command until somebody needs more of it than its name."""

    def __init__(self, named: Named) -> None:
        super().__init__(named.name, short_help=named.says, help=named.says)
        self._named = named
        self._loaded: Any = None

    @property
    def loaded(self) -> Any:
        """The command itself."""
        if self._loaded is None:
            self._loaded = load(self._named)
        return self._loaded

    @property
    def commands(self) -> dict[str, Any]:
        """Those of the group that it stands for; none of a command."""
        return getattr(self.loaded, "commands", {})

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """The context of the command itself, which goes on in its place."""
        return self.loaded.make_context(info_name, args, parent, **extra)


def load(named: Named) -> Any:
    """Import a command, with its examples at the end of its help.

    Help is plain text everywhere: boxes cut the names of options on a narrow terminal, and take twice the time.
    """
    module, _, attribute = named.place.partition(":")
    found = getattr(importlib.import_module(module), attribute)
    if isinstance(found, typer.Typer):
        command: Any = get_group(found)
    else:
        alone = typer.Typer()
        alone.command(named.name)(found)
        command = get_group(alone).commands[named.name]
    command.name = named.name
    _finish(command, named.name)
    return command


def _finish(command: Any, path: str) -> None:
    command.rich_markup_mode, command.epilog = None, ending_of(path)
    for name, one in getattr(command, "commands", {}).items():
        _finish(one, f"{path} {name}")


def _end_misused(error: typer.TyperException) -> NoReturn:
    """Of wrong arguments: what is wrong, and where to read more. Without any, the help is what there is to say."""
    ctx = getattr(error, "ctx", None)
    path = ctx.command_path if ctx is not None else "prefixgate"
    message = error.format_message()
    if type(error).__name__ == "NoArgsIsHelpError":
        typer.echo(message, nl=bool(message))
    else:
        say(message, "usage", f"{path} --help lists what there is")
    sys.exit(error.exit_code if error.exit_code != NOT_DONE else CANNOT_BE_USED)


@contextmanager
def _output(*, serves: bool) -> Iterator[None]:
    """Whatever is printed inside: that a pipe is closed or a disk is full is found out before all is over.

    Raises `typer.Exit` for what the operating system refuses, unless the command `serves`.
    """
    try:
        yield
        if sys.stdout is not None:
            sys.stdout.flush()
    except SystemExit as left:
        if isinstance(left.__context__, BrokenPipeError):  # Typer, or a table, found it out
            _drop_output()
            raise typer.Exit(OUTPUT_CLOSED) from None
        raise
    except BrokenPipeError:
        _drop_output()
        raise typer.Exit(OUTPUT_CLOSED) from None
    except OSError as error:
        if serves:
            raise
        _drop_output()
        raise _refused_by_system(error) from None


def _refused_by_system(error: OSError) -> typer.Exit:
    why = error.strerror or str(error)
    if error.filename is not None:
        return refused(error)
    what = "the output could not be written: " if error.errno in FULL else ""
    return refused(f"{what}{why}", NOT_DONE, code="output_unwritable" if what else "system_error")


def _print_what_can_be_printed() -> None:
    """In a locale that lacks a letter its code is printed, and nothing breaks off."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _drop_output() -> None:
    """What is still to be written goes nowhere, so that the interpreter does not complain of it at its end."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
