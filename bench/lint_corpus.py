"""Precision and recall of `prefixgate lint` over labelled prompts, per rule and in all: bench/results/lint.json.

    templates   33 real templates of agents, every slot labelled by hand           tests/data/lint/templates.yaml
    sources     written for each rule, right and wrong                             tests/data/lint/sources.yaml
    captures    requests in order, written for each rule, right and wrong          tests/data/lint/captures.yaml
    planted     real conversations left alone, and with one fault put into them    bench/lint_planted.py

A finding is right where its rule and its line (of a template: its slot, of captures: nothing more) are labelled. The
sources and captures were written by who wrote the rules: what they say is that each rule does what it says, not how
often it would be wrong elsewhere.
"""

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from time import process_time
from typing import Final

from bench.lint_examples import Example, found_in, labelled, places, templates
from bench.lint_planted import planted
from bench.result import Goal, write_result

NAMED: Final = ("time-before-fixed", "date-before-fixed")


@dataclass(slots=True)
class Scores:
    """Of each rule: what was found and labelled, found only, labelled only."""

    right: Counter[str] = field(default_factory=Counter)
    false: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    clean: int = 0
    """Examples with no label in which nothing was found."""
    unlabelled: int = 0

    def add(self, example: Example) -> frozenset[tuple[str, str]]:
        """One more example; returns what differs."""
        got = places(example, found_in(example))
        self.right.update(rule for rule, _ in got & example.finds)
        self.false.update(rule for rule, _ in got - example.finds)
        self.missed.update(rule for rule, _ in example.finds - got)
        self.unlabelled += not example.finds
        self.clean += not example.finds and not got
        return got ^ example.finds

    def rows(self, of: str) -> Iterator[dict[str, object]]:
        """A row a rule, and one of all."""
        names = sorted({*self.right, *self.false, *self.missed})
        for name in names:
            yield _row(of, name, self.right[name], self.false[name], self.missed[name])
        yield _row(of, "all", self.right.total(), self.false.total(), self.missed.total())

    def clean_row(self) -> dict[str, object]:
        """How many examples had nothing wrong with them, and in how many of them nothing was found."""
        return {"without_fault": self.unlabelled, "clean": self.clean}

    def goals(self, of: str) -> Iterator[Goal]:
        """What is wanted of a corpus."""
        right, false, missed = self.right.total(), self.false.total(), self.missed.total()
        yield Goal(f"{of}: precision", right / max(right + false, 1), 0.95, ">=")
        yield Goal(f"{of}: recall", right / max(right + missed, 1), 0.9, ">=")
        yield Goal(
            f"{of}: times and dates before fixed text that were missed", sum(self.missed[n] for n in NAMED), 0, "<="
        )


def _row(of: str, rule: str, right: int, false: int, missed: int) -> dict[str, object]:
    return {
        "of": of,
        "rule": rule,
        "right": right,
        "false": false,
        "missed": missed,
        "precision": round(right / (right + false), 4) if right + false else None,
        "recall": round(right / (right + missed), 4) if right + missed else None,
    }


def main() -> None:
    """Score all corpora, print and write."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--show", action="store_true", help="print what differs from the labels")
    show = options.parse_args().show
    corpora = {
        "templates": templates(),
        "sources": labelled("sources"),
        "captures": labelled("captures"),
        "planted": list(planted()),
    }
    rows: list[dict[str, object]] = []
    goals: list[Goal] = []
    for name, examples in corpora.items():
        scores, took_s = scored(examples, show=show)
        rows += [*scores.rows(name), {"of": name, "examples": len(examples), **scores.clean_row(), "cpu_s": took_s}]
        goals += scores.goals(name)
    for row in rows:
        print(_line(row))
    for goal in goals:
        print(goal.text())
    print(write_result("lint", rows, goals, ("jinja2", "pyyaml")))


def scored(examples: Iterable[Example], *, show: bool = False) -> tuple[Scores, float]:
    """The scores of examples, and the seconds of CPU that reading them took."""
    scores, began = Scores(), process_time()
    for example in examples:
        differs = scores.add(example)
        if show and differs:
            print(f"{example.name}: {sorted(differs)}, labelled {sorted(example.finds)}")
    return scores, round(process_time() - began, 3)


def _line(row: Mapping[str, object]) -> str:
    if "examples" in row:
        return "{of}: {examples} examples, {without_fault} without a fault, {clean} of them clean, {cpu_s} s\n".format(
            **row
        )
    return (
        "{of:<10} {rule:<24} right {right:>3}  false {false:>3}  missed {missed:>3}  precision {precision}  "
        "recall {recall}".format(**row)
    )


if __name__ == "__main__":
    main()
