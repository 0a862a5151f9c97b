"""Rows held against each other."""

from msgspec.structs import replace

from gateway.tuning.table import as_json, lines_of, results_of, table_of
from gateway.tuning.types import Answer, Quality, Reading, Row, Speed, Tasks

AXES = ("output_tokens_per_s", "memory_bytes", "perplexity")


def row(
    name: str, per_s: float | None, *logprobs: float, tokens: tuple[int, ...] = (1, 2), unit: str = "tokens"
) -> Row:
    reading = Reading([*logprobs], 10, "echo") if logprobs else None
    quality = Quality([Answer([*tokens])], unit, Tasks(1, 2, 4), reading, None if reading else "nobody tells")
    speed = Speed(9, 0, 1.0, per_s, None, None)
    return Row(key=name, setting={"name": name}, at="", seconds=1.0, speed=speed, quality=quality)


def failed(name: str) -> Row:
    return Row(key=name, setting={"name": name}, at="", seconds=1.0, failed="it ended")


def on_front(*rows: Row, axes: tuple[str, ...] = AXES) -> list[bool | None]:
    return [one.is_on_front for one in results_of(rows, axes).rows]


def test_a_setting_is_on_the_front_where_it_is_faster_or_better() -> None:
    rows = (row("fine", 10, -1, -1), row("coarse", 20, -2, -2), row("bad", 10, -2, -2))
    assert on_front(*rows) == [True, True, False]


def test_a_figure_that_nobody_knows_is_not_weighed_and_is_told() -> None:
    found = results_of([row("a", 10, -1), row("b", 20, -1)], AXES)
    assert [axis.name for axis in found.axes] == ["output_tokens_per_s", "perplexity"]
    assert found.unknown == ["memory_bytes"]
    assert any("memory_bytes" in line for line in lines_of(found))


def test_where_nobody_tells_perplexity_agreement_stands_in_for_it() -> None:
    rows = (row("base", 10), row("same", 9), row("other", 20, tokens=(1, 3)))
    found = results_of(rows, AXES)
    assert [axis.name for axis in found.axes] == ["output_tokens_per_s", "agreement"]
    assert on_front(*rows) == [True, False, True]
    assert "no perplexity: nobody tells" in list(lines_of(found))


def test_speed_is_not_weighed_alone_where_the_baseline_failed() -> None:
    found = results_of([failed("base"), row("a", 10), row("b", 20)], AXES)
    assert [axis.name for axis in found.axes] == ["output_tokens_per_s", "agreement"]
    assert [one.is_on_front for one in found.rows] == [None, None, None]
    assert [one.agreement for one in found.rows] == [None, None, None]


def test_answers_in_words_are_not_held_against_answers_in_tokens() -> None:
    found = results_of([row("base", 10, -1), row("words", 10, -1, unit="words")], AXES)
    assert found.rows[0].agreement is not None
    assert found.rows[1].agreement is None


def test_a_speed_that_is_not_told_keeps_a_setting_off_the_front() -> None:
    assert on_front(row("a", None, -1), row("b", 1, -1)) == [None, True]


def test_every_row_of_the_table_has_all_columns_and_failed_ones_are_told_below() -> None:
    found = results_of([row("a", 10, -1, -2), failed("b")], AXES)
    table = table_of(found)
    assert {len(list(column.cells)) for column in table.columns} == {2}
    assert list(table.columns[1].cells) == ["●", "failed"]
    assert "failed: name=b: it ended" in list(lines_of(found))


def test_where_every_setting_failed_nothing_is_said_but_why() -> None:
    assert list(lines_of(results_of([failed("a"), failed("b")], AXES))) == [
        "failed: name=a: it ended",
        "failed: name=b: it ended",
    ]


def test_what_is_to_be_known_of_the_figures_stands_below_once() -> None:
    rows = [replace(row("a", 10), notes=["slow", "seed 0"]), replace(row("b", 20), notes=["slow"])]
    said = [*lines_of(results_of(rows, ("agreement",)))]
    assert [line for line in said if "note" in line] == ["note: 2 settings: slow"]


def test_json_of_a_failed_setting_has_neither_speed_nor_quality() -> None:
    page = as_json(results_of([row("a", 10, -1), failed("b")], AXES))
    assert (page["settings"][1]["speed"], page["settings"][1]["quality"]) == (None, None)
    assert page["settings"][0]["quality"]["bits_per_byte"] > 0
