"""The form of CHANGELOG.md, read as a release reads it.

The title stands once, first, and `## Unreleased` once, before all versions. These are newest first, each with its day:
`## 0.1.0 - 2026-12-01`. Below are `### Added`, `### Changed` and `### Fixed`, in this order, none of them empty. An
entry begins with `- `, and goes on after two blanks.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from itertools import pairwise
from typing import Final

from packaging.version import InvalidVersion, Version

KINDS: Final = ("Added", "Changed", "Fixed")
UNRELEASED: Final = "Unreleased"


@dataclass(slots=True)
class Section:
    """A `##` heading, and the lines below each of its `###` headings, in their order."""

    title: str
    kinds: list[tuple[str, list[str]]] = field(default_factory=list)
    stray: list[str] = field(default_factory=list)
    """Lines before the first `###`."""


def sections_of(text: str) -> list[Section]:
    """All sections in the order of the file; blank lines are left out."""
    sections: list[Section] = []
    for line in text.splitlines():
        if line.startswith("## "):
            sections.append(Section(line[3:]))
        elif sections and line.startswith("### "):
            sections[-1].kinds.append((line[4:], []))
        elif sections and line:
            (sections[-1].kinds[-1][1] if sections[-1].kinds else sections[-1].stray).append(line)
    return sections


def problems_of(text: str, released: str | None = None) -> list[str]:
    """What is wrong, in the order of the file; with `released`, a version that must have its section."""
    sections = sections_of(text)
    found = [] if text.startswith("# Changelog\n") else ["it does not begin with '# Changelog'"]
    titles = [section.title for section in sections]
    if titles[:1] != [UNRELEASED] or titles.count(UNRELEASED) > 1:
        found.append("'## Unreleased' must be there once, before all versions")
    for section in sections:
        found += [f"{section.title}: {problem}" for problem in _problems_within(section)]
    found += _problems_of_versions([title for title in titles if title != UNRELEASED])
    if released is not None and not any(title.startswith(f"{released} - ") for title in titles):
        found.append(f"there is no section '## {released} - DATE' for what is being released")
    return found


def _problems_within(section: Section) -> Iterator[str]:
    if section.stray:
        yield f"text before the first ###: {section.stray[0]!r}"
    kinds = [kind for kind, _ in section.kinds]
    if kinds != [kind for kind in KINDS if kind in kinds]:
        yield f"has {', '.join(kinds)}; may have {', '.join(KINDS)}, in this order"
    for kind, lines in section.kinds:
        if not lines or not lines[0].startswith("- "):
            yield f"{kind} has no entry"
        yield from (
            f"{kind}: no entry, nor more of one: {line!r}" for line in lines if not line.startswith(("- ", "  "))
        )


def _problems_of_versions(titles: list[str]) -> Iterator[str]:
    versions = [_version_of(title) for title in titles]
    yield from (
        f"'## {title}' is not 'VERSION - YYYY-MM-DD'"
        for title, version in zip(titles, versions, strict=True)
        if version is None
    )
    known = [version for version in versions if version is not None]
    if any(newer <= older for newer, older in pairwise(known)):
        yield "versions are not newest first"


def _version_of(title: str) -> Version | None:
    found = re.fullmatch(r"(\S+) - (\d{4}-\d\d-\d\d)", title)
    if found is None:
        return None
    try:
        date.fromisoformat(found[2])
        return Version(found[1])
    except (InvalidVersion, ValueError):
        return None
