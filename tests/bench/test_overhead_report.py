"""Tables, goals, page and picture of the benchmark of overhead."""

import math
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

from bench.overhead_load import Measured, Window
from bench.overhead_page import BEGIN, END, IMAGE, PAGE, UNMEASURED, Result, page_part, part_of, read_result, with_part
from bench.overhead_plot import plot
from bench.overhead_prompts import Ask
from bench.overhead_report import Figures, Row, goals_of, grids, table
from bench.overhead_runs import Sheet
from bench.overhead_stage import Running
from bench.result import RESULTS

FILE = RESULTS / "overhead.json"


def cell(p50_us: float, per_s: float, *void: str) -> dict[str, object]:
    """Three passes, the second of which was disturbed."""
    return {
        "void": list(void),
        "p50_us": [p50_us, 10 * p50_us, p50_us],
        "p99_us": [2 * p50_us, 20 * p50_us, 2 * p50_us],
        "requests_per_s": [per_s, per_s / 10, per_s],
        "cpu_us": [300.0, 400.0, 300.0],
        "index_cpu_us": [40.0, 40.0, 40.0] if per_s == 3000 else [0.0, 0.0, 0.0],
    }


def row(router: str, policy: str, size: str, p50_us: float, per_s: float, *void: str) -> Row:
    about = {"router": router, "policy": policy, "size": size}
    counts = {"body_bytes": 2295, "prompt_tokens": 464, "cached_tokens": 432}
    cells = {f"c={count}": cell(p50_us, per_s, *(void if count == 64 else ())) for count in (1, 16, 64)}
    return {**about, **counts, **cells, **({} if router == "direct" else {"peak_mb": 100.0})}


def rows(ours_per_s: float = 3000, *void: str) -> list[Row]:
    return [
        one
        for size in ("2.3 KB", "33 KB")
        for one in (
            row("direct", "", size, 20, 40_000),
            row("nginx", "", size, 60, 15_000),
            row("SMG", "round_robin", size, 400, 3500),
            row("SMG", "cache_aware", size, 600, 2500),
            row("LiteLLM", "simple-shuffle", size, 20_000, 50),
            row("prefixgate", "1 worker", size, 500, ours_per_s, *void),
        )
    ]


def test_figures_are_medians_of_what_each_pass_says_by_itself() -> None:
    figures = Figures(rows())
    ours = ("prefixgate", "1 worker")
    assert figures.added_ms(ours, "33 KB", "p50_us") == pytest.approx(0.48)
    assert figures.of(ours, "33 KB", 16, "requests_per_s") == 3000
    assert figures.ratio(ours, ("nginx", ""), "33 KB", 16) == pytest.approx(0.2)
    assert math.isnan(figures.of(ours, "400 KB", 16, "requests_per_s"))


def test_a_table_has_what_is_added_the_requests_the_processor_and_the_memory() -> None:
    small, _ = grids(rows())
    assert small.caption == "2,295 bytes, 464 tokens, 432 shared"
    found = {line[0]: line[1:] for line in small.lines}
    assert found["direct"] == ["", "(0.02)", "(0.04)", "40,000", "2.67", "40,000", "2.67", "300", "-", "-"]
    assert found["prefixgate"] == ["1 worker", "0.48", "0.96", "3,000", "0.20", "3,000", "0.20", "300", "40", "100"]


def test_a_void_figure_is_not_shown_takes_part_in_no_goal_and_says_why() -> None:
    found = rows(3000, "12 status errors")
    small, _ = grids(found)
    assert small.lines[-1][6:8] == ["-", "-"]
    assert small.lines[-1][4] == "3,000"
    assert small.voids == ["prefixgate 1 worker, c=64: 12 status errors"]
    assert grids(found, with_void=True)[0].lines[-1][6] == "3,000"
    assert [goal.met for goal in goals_of(found)] == [False, False, False, False, False, False, True]
    console = Console(width=200)
    with console.capture() as capture:
        console.print(table(found))
    assert "void: prefixgate 1 worker, c=64: 12 status errors" in capture.get()


def test_errors_silence_and_answers_that_are_in_no_ledger_make_figures_void() -> None:
    with subprocess.Popen(("true",)) as process:
        ours = Running("prefixgate", "1 worker", "http://x", Path(), Path(), process, {})
    sheet, ask = Sheet(), Ask("2.3 KB", "", "", 464, 432, 22)
    sheet.add(ours, ask, 1, Window(Measured(10, 10**6, 5, 9), {}), None)
    sheet.add(ours, ask, 16, Window(Measured(10, 10**6, 5, 9, {"status": 4}), {}), "degraded: index")
    sheet.add(ours, ask, 64, Window(Measured(0, 10**6, 0, 0), {}), None)
    voids = [cell["void"] for cell in sheet.cells.values()]
    assert voids == [[], ["4 status errors; degraded: index"], ["no answers"]]
    sheet.hold_against(ours, 16)
    assert voids[0] == []
    sheet.hold_against(ours, 15)
    assert voids[0] == ["1 answers are not in the ledger"]


def test_goals_are_against_the_faster_smg_in_latency_and_the_one_that_looks_at_prefixes_in_requests() -> None:
    goals = {goal.name: goal for goal in goals_of(rows(2250))}
    latency = goals["33 KB: added p50 at c=1, ms, against the faster SMG"]
    assert (round(latency.value, 3), round(latency.bound, 3), latency.met) == (0.48, 0.38, False)
    small = [goal for name, goal in goals.items() if name.startswith("2.3 KB: requests a second / SMG cache_aware")]
    assert [(goal.value, goal.bound, goal.met) for goal in small] == [(0.9, 1.0, False)]
    assert [goal.met for goal in goals_of(rows(2250))] == [False, False, True, False, True, True, True]
    assert goals_of([one for one in rows() if one["router"] != "prefixgate"]) == []


def test_the_page_says_what_the_result_file_says() -> None:
    assert part_of(PAGE.read_text(encoding="utf-8")) == page_part(read_result(FILE))


def test_the_picture_shows_what_the_result_file_says() -> None:
    result = read_result(FILE)
    assert (IMAGE.read_text(encoding="utf-8") if IMAGE.exists() else "") == (plot(result.rows) if result else "")


def test_the_part_has_a_table_a_size_the_goals_and_what_is_void() -> None:
    goals = [{"name": "more", "value": math.nan, "bound": 1.0, "sense": ">=", "met": False}]
    part = page_part(Result("0123456789abcdef", {"cpu": "CPU", "cores": 2}, rows(3000, "late"), goals))
    assert part.startswith("Measured at commit `0123456789ab` on 2 cores of an CPU.\n\n![")
    assert "### Bodies of 33 KB\n\n2,295 bytes" in part
    assert "| **prefixgate** | **1 worker** | **0.48** |" in part
    assert "- prefixgate 1 worker, c=64: late\n" in part
    assert part.endswith("- **not met**: more: void\n")
    assert page_part(None) == UNMEASURED


def test_the_part_is_put_between_its_marks_and_found_again() -> None:
    page = with_part(f"before\n{BEGIN}\nold\n{END}\nafter\n", "new\n")
    assert page == f"before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"
    assert part_of(page) == "new\n"
    with pytest.raises(ValueError, match="no part between"):
        with_part("nothing here", "new\n")


def test_the_picture_has_a_bar_for_each_router_that_was_measured() -> None:
    text = plot(rows())
    root = ElementTree.fromstring(text)
    bars = [one for one in root.iter("{http://www.w3.org/2000/svg}rect") if one.attrib["class"] != "page"]
    assert len(bars) == 2 * 5
    assert "3,000 /s   + 0.48 ms" in text
    assert plot([]) == ""
