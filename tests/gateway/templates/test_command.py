"""`prefixgate templates`: a template looked at without a gateway."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from gateway.cli import cli
from tests.gateway.templates.files import ORDERED, folder, support


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["templates", *map(str, arguments)], env={"COLUMNS": "200"})


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return folder(tmp_path / "templates", support=support())


def test_show_says_what_is_moved_and_what_it_is_worth(place: Path) -> None:
    said = run("show", place / "support.yaml").output
    assert "move   message 0, character 0 -> " in said
    assert "now changes per-request (as marked)" in said
    assert "expected cached share: 0.0% before, " in said
    assert "2 samples" in said


def test_show_finds_a_template_by_its_name(place: Path) -> None:
    assert "support@1: jinja, messages: 3, called reordered" in run("show", "support", "--templates", place).output
    assert run("show", "nothing", "--templates", place).exit_code == 2


def test_what_is_not_where_it_was_named_is_said(place: Path) -> None:
    assert "there is no file nothing.yaml" in run("show", "nothing.yaml").output
    assert "is a folder: name it by --templates" in run("check", place).output


def test_show_prints_the_new_text(place: Path) -> None:
    assert ORDERED.format(now="{{ now }}") in run("show", place / "support.yaml", "--text").output


def test_show_as_json_has_all(place: Path) -> None:
    shown = json.loads(run("show", place / "support.yaml", "--json").output)
    assert shown["share_after"]["share"] > shown["share_before"]["share"]


def test_any_prompt_can_be_looked_at_with_made_up_variables(tmp_path: Path) -> None:
    path = tmp_path / "prompt.md"
    path.write_text("Today is {today:%d}.\n\n" + "Be brief and kind.\n" * 40)
    said = run("show", path, "--syntax", "format").output
    assert "today changes per-session (judged as date)" in said
    assert run("show", path).exit_code == 2


def test_check_reads_a_folder_as_the_gateway_would(place: Path) -> None:
    result = run("check", "--templates", place)
    assert (result.exit_code, "usable, templates: 1" in result.output) == (0, True)
    assert "support@1: reordered, moves: 1, stay: 0" in result.output
    (place / "bad.yaml").write_text("name: [")
    assert run("check", "--templates", place).exit_code == 2
    assert run("check", place / "bad.yaml").exit_code == 2
    assert run("check").exit_code == 2
