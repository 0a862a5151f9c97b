"""The tables of the lab are those of its results; every theme measures and holds its figures against its goals."""

import json
import sys
from pathlib import Path

import pytest
import torch

from bench import engine_lab
from bench.engine_lab import PAGE, RESULT, THEMES, beside, cell, measured, setting, table, written_into
from bench.lab import batching, first_token, paging, weights
from bench.lab.lengths import sharegpt_like
from bench.lab.turns import median_figures, median_of_turns
from bench.lab.types import Figure, Row, Theme
from bench.result import Goal
from tests.bench.micro_lab import micro_lab


def test_the_page_has_the_tables_of_the_results() -> None:
    page = PAGE.read_text(encoding="utf-8")
    rows = json.loads(RESULT.read_text(encoding="utf-8"))["rows"]
    assert written_into(page, rows) == page
    assert {row["theme"] for row in rows} == {theme.name for theme in THEMES}


def test_a_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="no marks for paging"):
        written_into("# The lab\n", [{"theme": "paging", "technique": "blocks"}])


def test_cells_have_three_digits_and_say_what_is_unknown() -> None:
    assert [cell(one) for one in (None, "99.1%", 1234.5, 0.12345, 12.345, 7)] == [
        "-",
        "99.1%",
        "1,234",
        "0.123",
        "12.3",
        "7",
    ]


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def test_how_a_table_was_measured_stands_below_it_or_in_its_columns() -> None:
    row: dict[str, Figure] = {
        "theme": "weights",
        "device": "cpu",
        "threads": 1,
        "seconds of": "the wall",
        "commit": None,
        "technique": "a",
    }
    assert setting([row, row]) == "*on cpu, torch's threads: 1, seconds of the wall*"
    both = [row, row | {"device": "cuda"}]
    assert setting(both) == "*torch's threads: 1, seconds of the wall*"
    assert list(table(both)) == ["| device | technique |", "|---|---|", "| cpu | a |", "| cuda | a |"]


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paging, "REQUESTS", 20)
    monkeypatch.setattr(batching, "REQUESTS", 4)
    monkeypatch.setattr(batching, "LONG_PROMPT", 128)
    monkeypatch.setattr(first_token, "LENGTHS", (20, 40, 60))
    small = {"GROUP": 16, "WINDOW": 32, "CALIBRATION_WINDOWS": 2, "JUDGED_WINDOWS": 2, "PROMPTS": 2, "ANSWER": 3}
    for constant, value in {**small, "PREFILL": 32, "BATCH": 2}.items():
        monkeypatch.setattr(weights, constant, value)


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("name", ["weights", "paging", "batching", "chunked prefill", "first token"])
def test_a_theme_measures_its_rows(name: str) -> None:
    [theme] = [one for one in THEMES if one.name == name]
    rows, goals = measured(micro_lab(), [theme])
    assert len(rows) >= 3
    assert {row["seconds of"] for row in rows} == {"the processor"}
    assert len({tuple(row) for row in rows}) == 1
    assert goals


def test_one_theme_measured_anew_leaves_the_others_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("paging", "batching")
    former_rows = [{"theme": name, "technique": "before"} for name in names]
    former_goals = [{"name": f"{name}: s", "value": 1, "bound": 2, "sense": "<="} for name in names]
    monkeypatch.setattr(engine_lab, "RESULT", tmp_path / "engine.json")
    fresh = {"theme": "weights", "technique": "now"}, {"theme": "paging", "technique": "now"}
    assert beside(fresh[:1], [], "weights") == ([fresh[0]], [])
    engine_lab.RESULT.write_text(json.dumps({"rows": former_rows, "goals": former_goals}), encoding="utf-8")
    rows, goals = beside(fresh[1:], [Goal("paging: t", 3, 4, ">=")], "paging")
    assert rows == [fresh[1], former_rows[1]]
    assert [goal.name for goal in goals] == ["paging: t", "batching: s"]
    rows, _ = beside(fresh[:1], [], "weights")
    assert [row["theme"] for row in rows] == ["weights", "paging", "batching"]


def test_goals_are_those_of_the_cpu() -> None:
    theme = Theme("none", lambda _lab: [Row("plain", {"s": 1.0})], lambda rows: [Goal("s", 1.0, 2.0, "<=")])
    rows, goals = measured(micro_lab(), [theme])
    assert [(row["theme"], row["device"], row["technique"], row["s"]) for row in rows] == [
        ("none", "cpu", "plain", 1.0)
    ]
    assert [goal.met for goal in goals] == [True]


def test_another_model_than_that_of_the_page_is_measured_and_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(engine_lab, "THEMES", (Theme("none", lambda _lab: [Row("plain", {"s": 1.0})], lambda _: []),))
    monkeypatch.setattr(engine_lab, "new_lab", lambda *_: micro_lab())
    monkeypatch.setattr(engine_lab, "devices", lambda: ["cpu"])
    for path in ("RESULT", "PAGE"):
        monkeypatch.setattr(engine_lab, path, tmp_path / path)
    monkeypatch.setattr(sys, "argv", ["engine_lab", "--model", "tiny"])
    engine_lab.main()
    assert "| plain | 1 |" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", ["--rounds", "--threads"])
def test_no_rounds_and_no_threads_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["engine_lab", option, "0"])
    with pytest.raises(SystemExit):
        engine_lab.main()
    assert f"argument {option}: 0 is not 1 or more" in capsys.readouterr().err


def test_contenders_take_turns_and_the_median_counts() -> None:
    asked: list[str] = []

    def saying(name: str, *figures: float) -> float:
        asked.append(name)
        return figures[asked.count(name) - 1]

    assert median_of_turns(3, lambda: saying("a", 9, 1, 2, 3), lambda: saying("b", 9, 6, 5, 4)) == [2, 5]
    assert asked == ["a", "b"] * 4
    [figures] = median_figures(3, [lambda: {"s": saying("c", 5, 7, 6)}])
    assert figures == {"s": 6}


def test_lengths_are_drawn_about_the_published_means_and_kept_within_the_longest() -> None:
    load = sharegpt_like(1000, share=1.0, longest=2048)
    assert sum(len(work.prompt) for work in load) / len(load) == pytest.approx(161, rel=0.15)
    assert sum(work.output_tokens for work in load) / len(load) == pytest.approx(338, rel=0.15)
    assert max(len(work.prompt) + work.output_tokens for work in load) <= 2048
    assert load == sharegpt_like(1000, share=1.0, longest=2048)
