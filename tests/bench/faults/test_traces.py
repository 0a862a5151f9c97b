"""Words where none belong are found, wherever they stand."""

from pathlib import Path

import pytest

from bench.faults import traces
from bench.faults.disks import small_disk
from bench.faults.traces import leaked

CANARY, KEY = "canary0123", "pg-secret"


def test_a_word_in_a_file_is_found_across_the_pieces_in_which_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traces, "_PIECE_BYTES", 8)
    (tmp_path / "below").mkdir()
    for at in range(20):
        (tmp_path / "below" / "file.db").write_bytes(b"." * at + CANARY.encode() + b"." * 20)
        assert leaked(tmp_path, CANARY, [KEY]) == ["below/file.db has a prompt"]


def test_secrets_count_in_logs_and_canaries_everywhere(tmp_path: Path) -> None:
    (tmp_path / "salt").write_text(KEY)
    assert leaked(tmp_path, CANARY, [KEY]) == []
    (tmp_path / "gateway.1.log").write_text(f"a line\nwith {KEY}\n")
    assert leaked(tmp_path, CANARY, [KEY]) == ["gateway.1.log has secret 1"]
    (tmp_path / "gateway.1.log").write_text(f"{CANARY} {KEY}")
    assert leaked(tmp_path, CANARY, [KEY]) == ["gateway.1.log has a prompt", "gateway.1.log has secret 1"]


def test_a_usual_folder_is_no_disk_that_can_be_filled_for_all(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", mounts=False) as disk:
        assert not disk.is_small
        assert not disk.fill(None)
        disk.empty()
