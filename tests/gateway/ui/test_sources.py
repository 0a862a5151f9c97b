"""The dashboard's own files: nothing in them makes markup or code out of text, and all that they name is there."""

import re
from pathlib import Path
from typing import Final

import pytest

from gateway.ui.files import STATIC

SCRIPTS: Final = sorted(STATIC.rglob("*.js"))
MADE_OF_TEXT: Final = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|setTimeout\(['\"`]|javascript:"
)
ELSEWHERE: Final = re.compile(r"\b(?:https?:)?//[a-z0-9-]+\.")
NAMESPACE: Final = "http://www.w3.org/2000/svg"


def name_of(path: Path) -> str:
    return path.relative_to(STATIC).as_posix()


@pytest.mark.parametrize("path", SCRIPTS, ids=name_of)
def test_a_script_makes_no_markup_and_no_code_out_of_text(path: Path) -> None:
    assert MADE_OF_TEXT.findall(path.read_text()) == []


@pytest.mark.parametrize("path", SCRIPTS, ids=name_of)
def test_what_a_script_imports_is_there_and_is_used(path: Path) -> None:
    text = path.read_text()
    for names, source in re.findall(r'^import (.+?) from "(.+?)";$', text, re.MULTILINE):
        assert (path.parent / source).is_file(), source
        exported = (path.parent / source).read_text()
        for name in re.findall(r"\w+", names.replace("* as ", "")):
            assert len(re.findall(rf"\b{name}\b", text)) > 1, f"{name} is not used"
            if not names.startswith("*"):
                pattern = rf"export (?:async )?(?:const|function\*?|class) {name}\b"
                assert re.search(pattern, exported), f"{source} has no {name}"


def test_all_files_are_small_and_load_nothing_from_elsewhere() -> None:
    for path in (one for one in STATIC.rglob("*") if one.suffix in (".js", ".css", ".html", ".svg")):
        text = path.read_text()
        assert len(text.splitlines()) < 400, path
        assert ELSEWHERE.findall(text.replace(NAMESPACE, "")) == [], path


def test_the_page_has_no_script_and_no_style_of_its_own() -> None:
    text = (STATIC / "index.html").read_text()
    assert re.findall(r"<style|style=|\son\w+=|<script(?![^>]* src=)", text) == []
    for name in re.findall(r'(?:src|href)="static/(.+?)"', text):
        assert (STATIC / name).is_file(), name
