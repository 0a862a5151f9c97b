"""The page about routing and its pictures are what the result file gives."""

from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.result import RESULTS
from bench.routing_fleets import caches, chat_as_filed
from bench.routing_page import (
    BEGIN,
    END,
    PAGE,
    UNMEASURED,
    Result,
    expected_part,
    page_part,
    part_of,
    read_result,
    with_part,
)
from bench.routing_plots import DRAWN, IMAGES, PICTURES, Chart, drawn_hits, drawn_lines, plots, write_plots
from bench.routing_report import Row
from bench.routing_tables import TABLES
from bench.routing_traces import CHAT_CACHES, SPEEDS, chat_name
from bench.routing_types import HITS, TTFT, Scenario, Table
from bench.svg import DARK, LIGHT

FILE = RESULTS / "routing.json"


def table(_full: bool) -> Table:
    scenario = Scenario("one", chat_as_filed, caches(2, 1024, 512), ("prefixgate", "rr"))
    return Table("S", "Small", "\nA load.\n", [scenario], columns=(HITS, *TTFT))


def row(policy: str, hits: float, p90_s: float, **more: float) -> Row:
    figures = {"hit_share": hits, "ttft_p90_s": p90_s, **more}
    return {"table": "S", "scenario": "one", "policy": policy, "seeds": 5, **figures}


ROWS = [
    {"table": "S", "scenario": "one", "policy": "ceiling", "seeds": 1, "pooled": 0.6, "unlimited": 0.75},
    row("prefixgate", 0.5, 0.25, ttft_p90_s_error=0.01),
    row("rr", 0.1, 0.5),
    row("dynamo", 0.4, 0.2),
    row("smg", 0.4, 0.24),
]


def goal(name: str, met: bool) -> dict[str, object]:
    return {"name": name, "value": 0.5, "bound": 0.25, "sense": ">=", "met": met}


def rows_of_charts() -> list[Row]:
    rates = {f"ttft_p90_s @ {rate}/s": 0.1 * rate for rate in (3, 20, 60)}
    ladder: list[Row] = [
        {"table": "B", "scenario": "answers of 250 tokens", "policy": policy, **rates} for policy in DRAWN
    ]
    chat: list[Row] = [
        {"table": "E", "scenario": chat_name(speed), "policy": policy, "ttft_p90_s": 0.1 * speed}
        for policy in ("prefixgate", "rr")
        for speed in SPEEDS
    ]
    hits: list[Row] = [
        {"table": "E", "scenario": CHAT_CACHES, "policy": policy, "hit_share": share}
        for policy, share in (("prefixgate", 0.26), ("sticky", 0.1), ("random", 0.08))
    ]
    ceiling: Row = {"table": "E", "scenario": CHAT_CACHES, "policy": "ceiling", "pooled": 0.29, "unlimited": 0.37}
    return [*ladder, *chat, *hits, ceiling]


def test_the_page_says_what_the_result_file_says() -> None:
    assert part_of(PAGE.read_text(encoding="utf-8")) == expected_part(TABLES, FILE)


def test_the_pictures_show_what_the_result_file_says() -> None:
    rows = read_result(FILE).rows if FILE.exists() else []
    assert sorted(plots(rows)) == (sorted(PICTURES) if rows else [])
    expected = {f"routing-{name}": text for name, text in plots(rows).items()}
    found = {path.name: path.read_text(encoding="utf-8") for path in IMAGES.glob("routing-*.svg")}
    assert found == expected


def test_the_part_has_each_table_with_ceilings_goals_and_who_is_ahead() -> None:
    result = Result("0123456789abcdef", ROWS, [goal("S: hits", True), goal("S: more", False), goal("T: x", False)])
    part = page_part({"S": table, "T": table}, result)
    assert "Measured at commit `0123456789ab`: everything, 5 seeds. Of 3 goals 1 are met; the 2 others" in part
    assert "### S. Small\n\nA load.\n" in part
    assert "**one** (one cache of all: 60.0 %, one without a limit: 75.0 %)" in part
    assert "| policy | hits % | p90 s |" in part
    assert "| **prefixgate** | 50.0 | 0.25 ± 0.01 |" in part
    assert "- **not met**: S: more: 0.5 ≥ 0.25" in part
    assert "- one: dynamo by 0.05 s of TTFT p90" in part
    assert "T." not in part
    assert "(img/" not in part
    assert "(img/routing-hits.svg)" in page_part({"S": table}, Result("0", rows_of_charts(), []))


def test_the_part_is_put_between_its_marks_and_found_again() -> None:
    page = with_part(f"before\n{BEGIN}\nold\n{END}\nafter\n", "new\n")
    assert page == f"before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"
    assert part_of(page) == "new\n"


def test_a_page_without_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="no part between"):
        with_part("nothing here", "new\n")


def test_without_a_result_the_page_says_so(tmp_path: Path) -> None:
    assert expected_part(TABLES, tmp_path / "routing.json") == UNMEASURED


def test_pictures_are_svg_with_a_line_for_each_policy_and_colours_for_both_schemes(tmp_path: Path) -> None:
    written = write_plots(rows_of_charts(), tmp_path)
    assert [path.name for path in written] == ["routing-ladder.svg", "routing-chat.svg", "routing-hits.svg"]
    for path in written:
        text = path.read_text(encoding="utf-8")
        ElementTree.fromstring(text)
        assert LIGHT[0] in text
        assert DARK[0] in text
    assert written[0].read_text().count('class="line') == len(DRAWN) == len(LIGHT) == len(DARK)
    assert "26.0  prefixgate" in written[2].read_text()


def test_labels_of_lines_that_end_together_stand_apart() -> None:
    lines = {policy: [(1.0, 0.2), (2.0, 0.2)] for policy in DRAWN}
    root = ElementTree.fromstring(drawn_lines(Chart("t", "x", {1.0: "1"}, lines)))
    heights = sorted(
        float(text.attrib["y"]) for text in root.iter("{http://www.w3.org/2000/svg}text") if text.text in DRAWN
    )
    assert len(heights) == len(DRAWN)
    assert min(b - a for a, b in pairwise(heights)) >= 14


def test_no_rows_make_no_pictures() -> None:
    assert plots([]) == {}
    assert drawn_hits([]) == ""
