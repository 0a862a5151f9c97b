"""A file is there as a whole or not at all."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gateway.whole_file import write_whole


def in_folder(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def test_a_text_is_put_in_the_place_of_another_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "kept.yaml"
    for text in ("one\n", "zwölf\n"):
        write_whole(path, text)
        assert path.read_text(encoding="utf-8") == text
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert in_folder(tmp_path) == ["kept.yaml"]


def test_what_cannot_be_written_leaves_what_was_there_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "kept.yaml"
    write_whole(path, "old")

    def full(_: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space left"):
        write_whole(path, "new")
    assert (path.read_text(), in_folder(tmp_path)) == ("old", ["kept.yaml"])


def test_of_many_who_make_a_new_file_at_once_one_does(tmp_path: Path) -> None:
    path = tmp_path / "kept.yaml"

    def made(number: int) -> bool:
        try:
            write_whole(path, f"{number}", is_new=True)
        except FileExistsError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        winners = [number for number, won in enumerate(pool.map(made, range(64))) if won]
    assert path.read_text() == f"{winners[0]}"
    assert (len(winners), in_folder(tmp_path)) == (1, ["kept.yaml"])


def test_a_file_system_without_links_takes_a_new_file_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError("no links here")

    monkeypatch.setattr(Path, "hardlink_to", refused)
    path = tmp_path / "kept.yaml"
    write_whole(path, "one", is_new=True)
    with pytest.raises(FileExistsError):
        write_whole(path, "two", is_new=True)
    assert (path.read_text(), in_folder(tmp_path)) == ("one", ["kept.yaml"])
