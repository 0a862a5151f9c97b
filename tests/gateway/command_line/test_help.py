"""Help is quick, has an example that can be run, and fits where it is read."""

import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from gateway.cli import COMMANDS, cli
from gateway.command_line.examples import EXAMPLES
from tests.gateway.command_line.commands import all_commands, parse

HEAVY = (
    "torch",
    "fastapi",
    "sqlalchemy",
    "reportlab",
    "tokenizers",
    "gateway.config",
    "redis",
    "prometheus_client",
    "httpx",
)
NO_JSON = {"serve", "completion"}
"""`serve` prints its address, and a script is a script."""


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["repot"], []])
def test_nothing_heavy_is_loaded_to_tell_what_there_is(arguments: list[str]) -> None:
    code = (
        "import sys, gateway.cli\n"
        f"sys.argv = ['prefixgate', *{arguments!r}]\n"
        "try:\n    gateway.cli.main()\nexcept SystemExit:\n    pass\n"
        f"print('loaded:', [name for name in {HEAVY!r} if name in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.endswith("loaded: []\n")


def test_every_command_has_an_example_that_can_be_run_as_it_stands() -> None:
    commands = dict(all_commands())
    assert set(EXAMPLES) == set(commands)
    for path, examples in EXAMPLES.items():
        for example in examples:
            assert example.startswith(f"prefixgate {path}")
            parse(example)
            shown = " ".join(CliRunner().invoke(cli, [*path.split(), "--help"]).output.split())
            assert f"Example: {example}" in shown


def test_every_command_that_prints_something_prints_json_too() -> None:
    lacking = {path for path, command in all_commands() if not any("--json" in one.opts for one in command.params)}
    assert lacking == NO_JSON


PLACES = ("--ledger", "--gateway", "--token-file", "--config")


def test_every_option_says_what_it_is_and_places_stand_last_in_one_order() -> None:
    for path, command in all_commands():
        options = [one for one in command.params if one.name != "help"]
        assert [one.name for one in options if not one.help] == [], path
        if path in {"serve", "lint"}:  # --ledger is one setting among others; places of --live stand beside it
            continue
        places = [name for one in options for name in one.opts if name in PLACES]
        assert places == sorted(places, key=PLACES.index), path
        assert not places or places[-1] in options[-1].opts, path


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_help_in_a_pipe_is_plain_and_as_wide_as_it_may_be(columns: int) -> None:
    for path in ["", *(named.name for named in COMMANDS)]:
        shown = CliRunner().invoke(cli, [*path.split(), "--help"], env={"COLUMNS": str(columns)})
        assert shown.exit_code == 0
        assert not re.search("[\x1b│╭─]", shown.output)
