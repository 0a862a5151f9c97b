"""Charts: everything on the page, in every form, and nothing where nothing is known."""

import xml.etree.ElementTree as ET
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from gateway.measuring.charts import panels_of
from gateway.measuring.drawing import HEIGHT, WIDTH, Dot, Line, Panel, Series, Text, drawn
from gateway.measuring.errors import PictureUnknown
from gateway.measuring.pictures import picture_of, png_of, svg_of, write_picture
from gateway.measuring.study import Frame, study_of
from gateway.measuring.terminal_plot import lines_of
from gateway.measuring.types import Limits, Study
from tests.gateway.measuring.test_verdict import USUAL
from tests.gateway.measuring.virtual import closed_loop, window_of

places = st.lists(st.tuples(st.floats(0, 1e4), st.floats(0, 1e4)), min_size=1, max_size=8)


@pytest.fixture(scope="module")
def study() -> Study:
    windows = [window_of(*closed_loop(USUAL, clients, (500, 50)), clients) for clients in (1, 4, 16, 64)]
    return study_of("simulated <engine>", windows, Frame(Limits(ttft_s=0.5, itl_s=0.02)))


@given(places, st.none() | st.just(1.0))
def test_whatever_the_values_everything_is_on_the_page(points: list[tuple[float, float]], top: float | None) -> None:
    drawing = drawn([Panel("t", "x", [Series("s", sorted(points))], [(5.0, "limit")], [(3.0, "knee")], top)] * 3)
    assert (drawing.width, drawing.height) == (2 * WIDTH, 2 * HEIGHT)
    for shape in drawing.shapes:
        for x, y in shape.places if isinstance(shape, Line) else [(shape.x, shape.y)]:
            assert 0 <= x <= drawing.width
            assert 0 <= y <= drawing.height


@given(places, st.integers(30, 200))
def test_in_letters_every_line_keeps_the_width(points: list[tuple[float, float]], columns: int) -> None:
    lines = list(lines_of(Panel("t", "load", [Series("s", points)]), columns))
    assert all(len(line) <= max(columns, 50) for line in lines)
    assert sum(line.count("0") for line in lines[1:9]) >= 1


def test_a_panel_without_points_is_not_drawn() -> None:
    nothing = Panel("t", "x", [Series("s", [])])
    assert drawn([nothing]).shapes == []
    assert list(lines_of(nothing, 80)) == []


def test_a_study_has_four_charts_with_its_limits_and_its_knee(study: Study) -> None:
    drawing = drawn(panels_of(study))
    said = {shape.said for shape in drawing.shapes if isinstance(shape, Text)}
    assert {"limit 0.5 s", "limit 0.02 s", "knee", "p99", "prefill", "within limits", "fit"} <= said
    assert any(isinstance(shape, Dot) for shape in drawing.shapes)


def test_of_what_nobody_knows_there_is_no_chart(study: Study) -> None:
    levels = [replace(level, prefill_share=None, itl=None) for level in study.levels]
    drawing = drawn(panels_of(replace(study, levels=levels, knee=None)))
    titles = [shape.said for shape in drawing.shapes if isinstance(shape, Text) and shape.is_title]
    assert titles == ["Requests a second", "Time to first token, s"]


def test_the_svg_is_xml_and_the_png_an_image_of_twice_the_size(study: Study) -> None:
    drawing = drawn(panels_of(study))
    root = ET.fromstring(svg_of(drawing, study.source))
    assert root.find("{*}title") is not None
    image = Image.open(BytesIO(png_of(drawing)))
    assert image.size == (2 * drawing.width, 2 * drawing.height)


def test_a_file_is_what_its_suffix_says(study: Study, tmp_path: Path) -> None:
    drawing = drawn(panels_of(study))
    write_picture(drawing, "t", tmp_path / "a.SVG")
    write_picture(drawing, "t", tmp_path / "a.png")
    assert (tmp_path / "a.SVG").read_text().startswith("<svg")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(PictureUnknown, match="svg or"):
        picture_of(tmp_path / "a.gif")
