"""Rows on the disk."""

from pathlib import Path

import msgspec
import pytest

from gateway.tuning.errors import ResultsUnusable
from gateway.tuning.results import append_row, key_of, read_rows
from gateway.tuning.types import Answer, Quality, Row, Speed

QUALITY = Quality([Answer([1, 2])], "tokens", None, None, "nobody tells")
SPEED = Speed(1, 0, 1.0, None, None, None)


def failed(key: str, why: str = "it ended") -> Row:
    return Row(key=key, setting={"a": 1}, at="2026-11-30T00:00:00+00:00", seconds=1.0, failed=why)


def test_a_row_has_no_speed_without_quality() -> None:
    with pytest.raises(ValueError, match="speed and quality, or neither"):
        Row(key="k", setting={}, at="", seconds=1.0, speed=SPEED)
    text = msgspec.json.encode({"key": "k", "setting": {}, "at": "", "seconds": 1.0, "speed": SPEED})
    with pytest.raises(msgspec.ValidationError, match="speed and quality"):
        msgspec.json.decode(text, type=Row)


def test_a_row_without_figures_says_why() -> None:
    with pytest.raises(ValueError, match="a reason"):
        Row(key="k", setting={}, at="", seconds=1.0)


def test_quality_without_anything_asked_is_none() -> None:
    with pytest.raises(ValueError, match="is none"):
        Quality([], "tokens", None, None)


def test_rows_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    rows = [failed("a"), Row(key="b", setting={"x": ["-f", "on"]}, at="", seconds=2.0, speed=SPEED, quality=QUALITY)]
    for row in rows:
        append_row(path, row)
    assert list(read_rows(path).values()) == rows


def test_of_a_setting_tried_twice_the_later_row_counts(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    append_row(path, failed("a", "first"))
    append_row(path, failed("a", "second"))
    assert read_rows(path)["a"].failed == "second"


def test_a_line_that_was_not_finished_is_passed_over_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    append_row(path, failed("a"))
    with path.open("ab") as file:
        file.write(b'{"key": "b", "sett')
    assert list(read_rows(path)) == ["a"]
    append_row(path, failed("c"))
    assert list(read_rows(path)) == ["a", "c"]


def test_no_file_has_no_rows(tmp_path: Path) -> None:
    assert read_rows(tmp_path / "none.jsonl") == {}


def test_a_file_of_something_else_is_named_with_the_line(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text('{"some": "thing"}\n')
    with pytest.raises(ResultsUnusable, match=r"r\.jsonl, line 1"):
        read_rows(path)


def test_a_folder_is_no_file_of_results(tmp_path: Path) -> None:
    with pytest.raises(ResultsUnusable):
        read_rows(tmp_path)
    with pytest.raises(ResultsUnusable):
        append_row(tmp_path, failed("a"))


def test_a_key_depends_on_the_setting_and_on_all_else_and_not_on_the_order() -> None:
    assert key_of({"a": 1, "b": 2}, {"load": 1}) == key_of({"b": 2, "a": 1}, {"load": 1})
    assert len({key_of({"a": 1}, 1), key_of({"a": 2}, 1), key_of({"a": 1}, 2), key_of({"a": "1"}, 1)}) == 4
