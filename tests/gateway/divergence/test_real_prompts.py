"""Prompts that people have written: those that begin with the time are named with what that costs, others are not."""

import gzip
import json
import re
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gateway.divergence import Watch
from gateway.divergence.findings import LiveFinding, findings_of
from tests.gateway.divergence.asked import BLOCK, CHARS, plan, request

CORPUS = Path(__file__).parents[2] / "data" / "corpora" / "prompt_templates.jsonl.gz"
CALLS = 12
NOW = datetime(2026, 11, 30, 9, 0, 7, tzinfo=UTC)


@cache
def templates() -> tuple[dict[str, Any], ...]:
    return tuple(map(json.loads, gzip.decompress(CORPUS.read_bytes()).splitlines()))


def written(template: dict[str, Any], time: str) -> str:
    """With the time in it, and all else the same."""
    text = template["template"]
    for slot in template["volatile"]:
        said, name = time if slot["kind"] == "time" else "as ever", re.escape(slot["name"])
        text = re.sub(rf"{{{{\s*{name}\s*}}}}|{{{name}}}", said, text)
    return str(text)


def begins_with_time(template: dict[str, Any]) -> bool:
    """Whether a time stands in its first half, and a block of text at least behind it."""
    one, other = (written(template, time).splitlines() for time in ("one", "other"))
    if one == other:
        return False
    first = next(place for place, (a, b) in enumerate(zip(one, other, strict=True)) if a != b)
    return (
        len("\n".join(one[:first])) < len("\n".join(one[first:]))
        and len("\n".join(one[first + 1 :])) > 8 * BLOCK * CHARS
    )


def found_in(template: dict[str, Any], *, clock: bool) -> list[LiveFinding]:
    """What calls show that differ in their question, and in the time where there is a clock."""
    watch = Watch(wall=lambda: 0.0)
    for number in range(CALLS):
        time = (NOW + timedelta(seconds=67 * number * clock)).strftime("%a %b %d %Y %H:%M:%S")
        asked = request(written(template, time), f"{number}: what is {37 * number} in words?")
        looked = watch.look(asked, plan(asked))
        assert looked is not None
        watch.note(asked, plan(asked), looked, "e@1", looked.shared_blocks * BLOCK)
    return findings_of(watch.signs(), 3_600.0)


DATED = [template for template in templates() if begins_with_time(template)]


@pytest.mark.parametrize("template", DATED, ids=lambda template: template["id"])
def test_a_prompt_that_begins_with_the_time_is_named_with_all_that_stands_behind_it(template: dict[str, Any]) -> None:
    [found] = found_in(template, clock=True)
    assert found.rule.id in ("time-before-fixed", "date-before-fixed")
    one, other = (written(template, time).splitlines() for time in ("one", "other"))
    first = next(place for place, (a, b) in enumerate(zip(one, other, strict=True)) if a != b)
    behind = len("\n".join(one[first + 1 :])) // CHARS
    assert found.requests == CALLS - 1
    assert found.lost_tokens / found.requests == pytest.approx(behind, rel=0.15)


@pytest.mark.parametrize("template", templates(), ids=lambda template: template["id"])
def test_the_same_prompt_without_a_clock_is_no_finding(template: dict[str, Any]) -> None:
    assert found_in(template, clock=False) == []


def test_there_are_prompts_that_begin_with_the_time() -> None:
    assert len(DATED) >= 10
