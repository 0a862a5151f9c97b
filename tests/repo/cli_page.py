"""The reference of docs/cli.md, made out of the commands: python -m tests.repo.cli_page writes it anew."""

import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, Final

from typer.main import get_command

from gateway.cli import cli
from gateway.command_line.examples import EXAMPLES

PAGE: Final = Path(__file__).parents[2] / "docs" / "cli.md"
_BEGIN: Final = "<!-- made by tests/repo/cli_page.py: from here on nothing is written by hand -->\n"


def written() -> str:
    """The page as it is."""
    return PAGE.read_text(encoding="utf-8")


def made() -> str:
    """The page as it should be: its part for people, and the reference of the commands as they are."""
    return written().partition(_BEGIN)[0] + _BEGIN + "\n" + "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield "## Commands\n"
    for path, command in _commands(get_command(cli), ""):
        yield f"### `prefixgate {path}`\n"
        yield f"{_flat(command.help)}\n"
        yield "```"
        yield from EXAMPLES.get(path, ())
        yield "```\n"
        yield "| option | default | |"
        yield "|---|---|---|"
        for one in command.params:
            if one.name != "help":
                yield f"| {_names(one)} | {_default(one)} | {_flat(one.help)} |"
        yield ""


def _commands(group: Any, before: str) -> Iterator[tuple[str, Any]]:
    for name, waiting in group.commands.items():
        command = getattr(waiting, "loaded", waiting)
        if getattr(command, "commands", None):
            yield from _commands(command, f"{before}{name} ")
        else:
            yield f"{before}{name}", command


def _names(one: Any) -> str:
    if one.param_type_name == "argument":
        return f"{one.name.upper().strip('_')}"
    names = ", ".join(f"`{name}`" for name in (*one.opts, *one.secondary_opts))
    env = f", `{one.envvar}` in the environment" if one.envvar else ""
    return names + env


def _default(one: Any) -> str:
    if one.required:
        return "needed"
    value = one.default.value if isinstance(one.default, Enum) else one.default
    return "" if value in (None, False, ()) or callable(value) else f"`{value}`"


def _flat(text: str | None) -> str:
    return re.sub(r"\s+", " ", text or "").replace("|", "\\|").strip()


if __name__ == "__main__":
    PAGE.write_text(made(), encoding="utf-8")
