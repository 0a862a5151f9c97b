"""Licences of what the gateway needs to run, against a list of those that are fine, and why.

    prefixgate[extras] --(Requires-Dist)--> distributions --(their metadata)--> SPDX expression --> allowed?

Who declares an expression is taken by it; the others by their classifiers, or a name of the licence that is known here.
A distribution of which neither says one licence is unknown, and that fails: somebody must look, and write down below
what was found. What is vendored inside of a wheel is known only as far as its metadata says it.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import Distribution
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

_PERMISSIVE: Final = "permissive: keep its text with what is passed on"
ALLOWED: Final[Mapping[str, str]] = {
    "0BSD": _PERMISSIVE,
    "Apache-2.0": "as our own",
    "Apache-2.0 WITH LLVM-exception": "as our own, with less asked",
    "BSD-2-Clause": _PERMISSIVE,
    "BSD-3-Clause": _PERMISSIVE,
    "BSL-1.0": _PERMISSIVE,
    "CC0-1.0": "public domain",
    "CNRI-Python": "permissive: an older licence of Python's, of tables inside of `regex`",
    "ISC": _PERMISSIVE,
    "LGPL-3.0-only": "psycopg: imported, never changed, and whoever runs the gateway may put another in its place",
    "MIT": _PERMISSIVE,
    "MIT-0": "permissive, and asks for nothing",
    "MIT-CMU": _PERMISSIVE,
    "MPL-2.0": "copyleft for its own files, which we do not change",
    "PSF-2.0": _PERMISSIVE,
    "Zlib": _PERMISSIVE,
}
"""SPDX identifiers, each with the reason why it may be among the dependencies."""

ONLY_FOR: Final[Mapping[str, frozenset[str]]] = {"LGPL-3.0-only": frozenset({"psycopg", "psycopg-binary"})}
"""Licences whose reason is one of the distribution, and not of all."""

LOOKED_AT: Final[Mapping[str, str]] = {
    "jinja2": "BSD-3-Clause",  # the classifier says BSD; LICENSE.txt has three clauses
    "mpmath": "BSD-3-Clause",  # the same
    "reportlab": "BSD-3-Clause",  # the same; LICENSE has three clauses
    "sympy": "BSD-3-Clause AND MIT",  # the same; LICENSE has what was taken from others, too
    "uvloop": "MIT OR Apache-2.0",  # both texts come with it, at one's choice
}
"""What was found by looking, where the metadata says too little."""

OF_NVIDIA: Final = ("nvidia-", "cuda-")
"""What torch brings for GPUs, under NVIDIA's own terms: with the extra `reference` alone, where its index is not that
for the CPU. It comes from the index to whoever asks for it, and is passed on by nobody here."""

_CLASSIFIERS: Final[Mapping[str, str]] = {
    "Apache Software License": "Apache-2.0",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
}
_NAMES: Final[Mapping[str, str]] = {"MIT License": "MIT", "3-Clause BSD License": "BSD-3-Clause", "ISC License": "ISC"}


@dataclass(frozen=True, slots=True)
class Finding:
    """A distribution and its licence: an expression, or None where it is unknown."""

    name: str
    version: str
    expression: str | None


def closure(
    name: str, extras: Iterable[str], installed: Callable[[str], Distribution]
) -> Iterator[tuple[str, Distribution]]:
    """All that a distribution with these extras needs, itself included, by their requirements here and now.

    `installed` finds a distribution by name, and raises `PackageNotFoundError` where one is missing.
    """
    seen: dict[str, set[str]] = {}
    waiting = [(canonicalize_name(name), frozenset(extras))]
    while waiting:
        at, wanted = waiting.pop()
        is_new = at not in seen
        if not is_new and wanted <= seen[at]:
            continue
        seen.setdefault(at, set()).update(wanted)
        distribution = installed(at)
        if is_new:
            yield at, distribution
        for each in map(Requirement, distribution.requires or ()):
            if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in (*wanted, "")):
                waiting.append((canonicalize_name(each.name), frozenset(each.extras)))


def declared(name: str, distribution: Distribution) -> Finding:
    """The licence as the metadata has it, or as it was looked up; see above."""
    metadata = distribution.metadata.json
    expression = LOOKED_AT.get(name) or metadata.get("license_expression")
    if not isinstance(expression, str):
        told = str(metadata.get("license", "")).strip().partition("\n")[0]  # some have the whole text there
        classifiers = [line.rpartition(" :: ")[2] for line in metadata.get("classifier", ()) if "License ::" in line]
        expression = None
        by_class = {_CLASSIFIERS.get(classifier) for classifier in classifiers}
        if told in ALLOWED or " AND " in told or " OR " in told:
            expression = told
        elif told in _NAMES:
            expression = _NAMES[told]
        elif len(by_class) == 1:
            expression = by_class.pop()
    return Finding(name, distribution.version, expression)


def refused(expression: str) -> list[str]:
    """The licences of an expression that stand in its way: [] where it is fine.

    Of alternatives one that is fine suffices. `AND` binds stronger than `OR`, as SPDX has it.
    """
    tokens = re.findall(r"\(|\)|(?:(?!\bAND\b|\bOR\b)[^()\s]+\s*)+|AND|OR", expression)
    words = [token.strip() for token in tokens]

    def alternatives() -> list[str]:
        found = [conjunction()]
        while words[:1] == ["OR"]:
            words.pop(0)
            found.append(conjunction())
        return min(found, key=len)

    def conjunction() -> list[str]:
        found = one()
        while words[:1] == ["AND"]:
            words.pop(0)
            found = found + one()
        return found

    def one() -> list[str]:
        word = words.pop(0) if words else ""
        if word == "(":
            inner = alternatives()
            if words[:1] != [")"]:
                return [*inner, f"unreadable: {expression}"]
            words.pop(0)
            return inner
        return [] if word in ALLOWED else [word or f"unreadable: {expression}"]

    found = alternatives()
    return found if not words else [*found, f"unreadable: {expression}"]


def objections(findings: Iterable[Finding]) -> list[str]:
    """One line for each distribution that may not be needed, or of which nobody knows whether it may."""
    lines = []
    for each in findings:
        if each.name.startswith(OF_NVIDIA):
            continue
        who = f"{each.name} {each.version}"
        if each.expression is None:
            lines.append(f"{who}: its licence is unknown; look, and write it into LOOKED_AT")
            continue
        if wrong := refused(each.expression):
            lines.append(f"{who}: {', '.join(wrong)} is not among those that are allowed")
        for licence, names in ONLY_FOR.items():
            if licence in each.expression and each.name not in names:
                lines.append(f"{who}: {licence} is allowed for {', '.join(sorted(names))} alone")
    return lines
