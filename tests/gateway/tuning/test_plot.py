"""The picture of a sweep."""

import xml.etree.ElementTree as ET
from itertools import pairwise

from gateway.tuning.plot import picture
from gateway.tuning.table import results_of
from tests.gateway.tuning.test_table import AXES, failed, row

ROWS = (row("fine", 10, -1, -1), row("coarse", 20, -2, -2), row("bad", 5, -2, -2.2))


def circles(svg: str) -> list[dict[str, str]]:
    return [one.attrib for one in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}circle")]


def test_what_is_beaten_is_hollow_and_what_reads_better_stands_to_the_right() -> None:
    fine, coarse, bad = circles(picture(results_of(ROWS, AXES)))
    assert ["hollow" in one["class"] for one in (fine, coarse, bad)] == [False, False, True]
    assert float(fine["cx"]) > float(coarse["cx"]) > float(bad["cx"])
    assert float(coarse["cy"]) < float(fine["cy"]) < float(bad["cy"])


def test_settings_without_figures_are_counted_below() -> None:
    svg = picture(results_of([*ROWS, failed("gone"), row("mute", None, -1, -1)], AXES))
    assert len(circles(svg)) == 3
    assert "3 settings; 2 more failed, or tell no such figure" in svg


def test_where_nothing_is_known_the_page_says_so() -> None:
    svg = picture(results_of([failed("gone")], AXES))
    assert circles(svg) == []
    assert "0 settings; 1 more failed" in svg


def test_one_setting_alone_is_in_the_middle() -> None:
    [only] = circles(picture(results_of([row("only", 0, -1, -1)], AXES)))
    assert 76 < float(only["cx"]) < 730


def test_names_of_like_settings_stand_below_each_other() -> None:
    rows = [row(f"setting {n}", 10 + n / 100, -1, -1) for n in range(4)]
    texts = ET.fromstring(picture(results_of(rows, AXES))).iter("{http://www.w3.org/2000/svg}text")
    heights = sorted(float(one.attrib["y"]) for one in texts if "name=" in (one.text or ""))
    assert len(heights) == 4
    assert all(below - above >= 14 for above, below in pairwise(heights))


def test_the_figures_at_the_axes_are_round() -> None:
    texts = ET.fromstring(picture(results_of(ROWS, AXES))).iter("{http://www.w3.org/2000/svg}text")
    figures = [one.text for one in texts if (one.text or "").replace(".", "").isdigit()]
    assert {"0", "5", "10", "15", "20"} <= set(figures)
