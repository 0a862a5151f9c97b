"""The commands refuse what cannot work, with exit code 2 and a text that says what."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from gateway.cli import cli

BACKEND = "backends: [{url: 'http://127.0.0.1:9'}]\n"


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ("log_level: info", "no backend"),
        (BACKEND + "keys_file: gone.yaml", "gone.yaml"),
        (BACKEND + "prices_file: gone.yaml", "gone.yaml"),
        (BACKEND + "admin_token_file: gone", "gone"),
        (BACKEND + "models: {m: {tokenizer: gone}}", "gone"),
        (BACKEND + "ledger: {path: gone/ledger.db}", "there is no folder"),
        (BACKEND + BACKEND, "'backends' stands twice"),
    ],
)
def test_check_refuses_what_serve_would_refuse(
    config: str, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c.yaml").write_text(config)
    result = CliRunner().invoke(cli, ["check", "-c", "c.yaml"])
    assert result.exit_code == 2
    assert complaint in result.output


@pytest.mark.parametrize("arguments", [["we ird: x"], ["acme", "--id", "a}b"]])
def test_a_key_is_made_only_for_a_name_that_yaml_and_labels_can_hold(arguments: list[str]) -> None:
    result = CliRunner().invoke(cli, ["keys", "new", *arguments])
    assert result.exit_code == 2
    assert "is no name" in result.output


def test_a_report_of_no_period_is_refused() -> None:
    result = CliRunner().invoke(cli, ["report", "--from", "yesterday", "--to", "2026-12-01"])
    assert result.exit_code == 2
    assert "yesterday" in result.output
