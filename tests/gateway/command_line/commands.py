"""All commands, as Typer builds them."""

import shlex
from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from gateway.cli import cli


def root() -> Any:
    """The group of all commands."""
    return get_command(cli)


def all_commands(group: Any = None, before: str = "") -> Iterator[tuple[str, Any]]:
    """Every command that does something, with the words that are typed for it."""
    for name, waiting in (root() if group is None else group).commands.items():
        command = getattr(waiting, "loaded", waiting)
        if getattr(command, "commands", None):
            yield from all_commands(command, f"{before}{name} ")
        else:
            yield f"{before}{name}", command


def parse(line: str) -> None:
    """Read a command line as it would be run, without running it. Raises what Typer does."""
    program, *arguments = shlex.split(line)
    assert program == "prefixgate"
    context = root().make_context(program, arguments)
    while rest := [*context._protected_args, *context.args]:
        name, command, rest = context.command.resolve_command(context, rest)
        context = command.make_context(name, rest, parent=context)
        if not getattr(context.command, "commands", None):
            return
