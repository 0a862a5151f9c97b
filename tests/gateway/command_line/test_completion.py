"""Shells complete commands, options and names out of the configuration's files; each that is here is asked."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gateway.cli import cli


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `prefixgate` on the path, beside files that a configuration names."""
    folder = tmp_path / "bin"
    folder.mkdir()
    script = folder / "prefixgate"
    script.write_text(f"#!{sys.executable}\nfrom gateway.cli import main\nmain()\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(Path.cwd()))
    monkeypatch.chdir(tmp_path)
    Path("keys.yaml").write_text("tenants: [{id: acme, keys: [{id: acme-1}]}, {id: globex, keys: []}]\n")
    Path("prices.yaml").write_text("prices: [{model: llama}, {model: qwen}]\n")
    Path("c.yaml").write_text(
        "keys_file: keys.yaml\nprices_file: prices.yaml\n"
        "backends: [{url: 'http://gpu-a:8000'}, {url: 'http://b', id: b}]"
    )
    return script


def script_for(shell: str) -> str:
    result = CliRunner().invoke(cli, ["completion", shell])
    assert result.exit_code == 0, result.output
    return result.stdout


def run(shell: str, text: str) -> list[str]:
    command = [shell, *{"bash": ["--norc"], "fish": ["--no-config"], "zsh": ["-f"]}[shell], "-c", text]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout.splitlines()


def by_bash(words: Sequence[str]) -> list[str]:
    quoted = " ".join(f"'{word}'" for word in words)
    text = f"{script_for('bash')}\nCOMP_WORDS=({quoted}) COMP_CWORD={len(words) - 1}\n"
    return run("bash", text + "_prefixgate_completion prefixgate\nprintf '%s\\n' \"${COMPREPLY[@]}\"")


def by_fish(words: Sequence[str]) -> list[str]:
    found = run("fish", f"{script_for('fish')}\ncomplete --do-complete '{' '.join(words)}'")
    return [line.partition("\t")[0] for line in found]


def by_zsh(words: Sequence[str]) -> list[str]:
    """What zsh would be told: `compdef` needs a terminal, so the function's answer is taken before it is shown."""
    text = 'compdef() { :; }\n_arguments() { print -r -- "$@"; }\n_describe() { :; }\n'
    quoted = " ".join(f"'{word}'" for word in words)
    return run("zsh", f"{text}{script_for('zsh')}\nwords=({quoted}); CURRENT={len(words)}; _prefixgate_completion")


@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("prefixgate in", ["init", "index", "invoice"]),
        ("prefixgate keys r", ["revoke", "rotate"]),
        ("prefixgate keys rotate -c c.yaml ", ["acme-1"]),
        ("prefixgate keys rotate --file keys.yaml ", ["acme-1"]),
        ("prefixgate report -c c.yaml --tenant ", ["acme", "globex"]),
        ("prefixgate prices show -c c.yaml --model ", ["llama", "qwen"]),
        ("prefixgate index clear -c c.yaml --endpoint ", ["b", "gpu-a-8000"]),
        ("prefixgate verify --format j", ["json"]),
        ("prefixgate verify --qu", ["--quiet"]),
        ("prefixgate report -c gone.yaml --tenant ", []),
        ("prefixgate report -c bin --tenant ", []),
    ],
)
@pytest.mark.usefixtures("program")
def test_names_are_completed_out_of_the_files_of_the_configuration(line: str, completed: list[str]) -> None:
    words = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" ")), "_PREFIXGATE_COMPLETE": "complete_bash"}
    assert CliRunner().invoke(cli, [], env=words).stdout.split() == completed


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
@pytest.mark.usefixtures("program")
def test_bash_completes() -> None:
    assert by_bash(["prefixgate", "in"]) == ["init", "index", "invoice"]
    assert by_bash(["prefixgate", "keys", "rotate", "-c", "c.yaml", ""]) == ["acme-1"]


@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish here")
@pytest.mark.usefixtures("program")
def test_fish_completes() -> None:
    assert by_fish(["prefixgate", "in"]) == ["index", "init", "invoice"]


@pytest.mark.skipif(shutil.which("zsh") is None, reason="no zsh here")
@pytest.mark.usefixtures("program")
def test_zsh_completes() -> None:
    (line,) = by_zsh(["prefixgate", "in"])[:1] or [""]
    assert '"init"' in line
