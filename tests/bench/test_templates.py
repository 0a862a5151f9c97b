"""The corpora's templates as calls, and the figures that are made of answers."""

import io
import json
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from bench import templates as bench
from bench.fix_cost import _bodies as bodies_of_cost
from bench.template_corpus import load_templates, load_tools
from bench.templates import Call, Run
from gateway.fixes import How, fixed
from gateway.fixes.rules import USUAL_FIXES
from gateway.templates import read_kept
from gateway.types import Route


def test_every_template_of_the_corpora_is_filled_anew_for_each_call() -> None:
    found = load_templates()
    assert len(found) == 33
    assert sum("CURRENT_TIME" in one.changing for one in found) == 9
    for one in found:
        first, second = one.filled(0), one.filled(1)
        assert (first.text == second.text) is not bool(one.changing)
        assert set(first.variables) == one.renderer.template.names
        assert all(value in first.text for value in first.values)


def test_a_gateway_keeps_each_template_and_says_the_same_words() -> None:
    for one in load_templates():
        kept = read_kept(json.dumps(one.file("Go on {now}."), ensure_ascii=False), one.id)
        system, user = kept.renderer.messages(one.filled(3).variables)
        assert user["content"] == "Go on {now}."
        assert sorted(str(system["content"]).split()) == sorted(one.filled(3).text.split())


def test_tools_are_of_different_names_and_in_order() -> None:
    names = [tool["function"]["name"] for tool in load_tools(65)]
    assert len(set(names)) == 65
    assert names == sorted(names)


def test_shares_are_of_what_could_have_been_cached_after_the_first_call() -> None:
    run = Run(
        "x", {"a": [Call(100, 0, 80), Call(100, 60, 80), Call(100, 20, 80)], "b": [Call(9, 9, 9)] * 2}, "1", "1", 1
    )
    assert run.share(["a"]) == 0.5
    assert run.share(["a", "b"]) == 89 / 169
    assert run.share(["a"], warm=False) == 80 / 240


def test_the_table_and_the_goals_are_of_all_ways(tmp_path: Path) -> None:
    templates = load_templates()[:2]
    calls = {one.id: [Call(100, 0, 80)] * 4 for one in templates}
    before = Run("as written", calls, "2.0", "2.0", 1.0)
    after = replace(before, way="both", calls={one.id: [Call(100, 79, 80)] * 4 for one in templates})
    tools = bench._Tools(
        (
            replace(before, calls={"tools": [Call(100, 1, 99)] * 4}),
            replace(after, calls={"tools": [Call(100, 98, 99)] * 4}),
        ),
        True,
    )
    runs = [before, replace(after, way="lines moved"), replace(after, way="fixed text first"), after]
    heads = [one.id for one in templates if bench._changes_at_head(one)]
    assert heads == [one.id for one in templates]
    assert all(goal.met for goal in bench._goals(runs, tools, heads))
    assert not all(goal.met for goal in bench._goals([before] * 4, tools, heads))
    console = Console(file=io.StringIO(), width=200)
    console.print(bench._table(runs, tools, templates, heads))
    assert isinstance(console.file, io.StringIO)
    assert "98.8%" in console.file.getvalue()
    assert bench._as_row(after, templates)["share_of_fixed"] == 79 / 80


def test_the_bodies_of_the_benchmark_of_costs_are_what_they_are_called() -> None:
    made = {
        name: fixed(json.dumps(body).encode(), How(Route.CHAT, USUAL_FIXES)).fixes for name, body in bodies_of_cost()
    }
    assert made["15 KB in order"] == made["65 tools in order"] == made["short chat"] == ()
    assert made["15 KB that begin with a time"] == ("lines",)
    assert made["65 tools in another order"] == ("tools",)
