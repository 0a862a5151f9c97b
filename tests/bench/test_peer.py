"""Peers live in environments of their own."""

from pathlib import Path

import pytest

from bench import peer
from bench.peer import PEERS, PeerNotInstalled, peer_python


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache and a directory of pins, both empty."""
    monkeypatch.setenv("PREFIXGATE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(peer, "PEERS", tmp_path)
    return tmp_path


def test_every_version_is_pinned() -> None:
    files = list(PEERS.glob("*.txt"))
    assert files
    for file in files:
        pins = [line for line in file.read_text().splitlines() if not line.startswith("#")]
        assert [pin for pin in pins if pin.count("==") != 1] == []


def test_an_environment_is_made_once_and_anew_for_other_pins(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[tuple[str, ...]] = []

    def make(*command: str) -> None:
        commands.append(command)
        Path(command[-1]).mkdir(parents=True, exist_ok=True)

    monkeypatch.setattr(peer, "_run", lambda *command: make(*command) if "venv" in command else None)
    (home / "some.txt").write_text("package==1\n")
    first = peer_python("some")
    assert peer_python("some") == first
    (home / "some.txt").write_text("package==2\n")
    assert peer_python("some") != first
    assert len(commands) == 2


def test_what_cannot_be_installed_says_why_and_is_tried_again(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "some.txt").write_text("package==1\n")
    python = home / "python"
    python.write_text("#!/bin/sh\necho try >> tries; echo; echo no room; echo; exit 3\n")
    python.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(python))
    monkeypatch.chdir(home)
    for _ in range(2):
        with pytest.raises(PeerNotInstalled, match=r"^no room$"):
            peer_python("some")
    assert (home / "tries").read_text() == "try\ntry\n"
