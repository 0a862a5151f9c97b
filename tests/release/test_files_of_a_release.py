"""What a release is checked for, seen to fail: contents, versions, changelog; the project as it is passes."""

from pathlib import Path

import pytest

from tests.release.changelog import problems_of
from tests.release.contents import metadata_problems, sdist_problems, wheel_problems
from tests.release.versions import Versions, disagreements, versions_in

ROOT = Path(__file__).parents[2]
COMMITTED = ["gateway/cli.py", "prefix_index/lua/radix.lua", "tests/test_x.py", ".ci/run", "README.md"]
DESCRIBED = [
    f"prefixgate-1.dist-info/{name}" for name in ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")
]
METADATA = """Metadata-Version: 2.4
Name: prefixgate
Version: 1.0
License-Expression: Apache-2.0
License-File: LICENSE
Requires-Dist: alembic==1.20.1
Requires-Dist: torch==2.13.0; extra == 'reference'
Provides-Extra: reference
"""
CHANGELOG = """# Changelog

## Unreleased

### Added

- A thing
  in two lines.

### Fixed

- Another.

## 0.2.0 - 2026-12-01

### Changed

- A third.

## 0.1.0 - 2026-11-01

### Added

- All.
"""


def test_a_wheel_has_every_file_of_the_packages_and_nothing_else() -> None:
    packages = COMMITTED[:2]
    assert wheel_problems([*packages, *DESCRIBED], COMMITTED) == []
    assert wheel_problems([packages[0], *DESCRIBED], COMMITTED) == ["not in the wheel: prefix_index/lua/radix.lua"]
    for stray in ("tests/test_x.py", "gateway/__pycache__/cli.cpython-311.pyc", "README.md"):
        (said,) = wheel_problems([*packages, *DESCRIBED, stray], COMMITTED)
        assert stray in said
    assert wheel_problems([*packages, *DESCRIBED[1:]], COMMITTED) == ["the wheel's METADATA is missing"]


def test_a_source_distribution_has_what_the_commit_has_but_for_what_builds_nothing() -> None:
    inside = ["gateway/cli.py", "prefix_index/lua/radix.lua", "tests/test_x.py", "README.md", "PKG-INFO"]
    names = [f"prefixgate-1/{name}" for name in inside]
    assert sdist_problems(names, COMMITTED) == []
    assert sdist_problems(names[1:], COMMITTED) == ["not in the source distribution: gateway/cli.py"]
    (said,) = sdist_problems([*names, "prefixgate-1/keys.yaml"], COMMITTED)
    assert said == "in the source distribution, and not of this commit: keys.yaml"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("Version: 1.0", "Version: 2.0", "Version is 2.0, not 1.0"),
        ("alembic==1.20.1", "alembic>=1", "alembic>=1 is not pinned"),
        ("; extra == 'reference'", "", "torch is needed without an extra"),
        ("Provides-Extra: reference\n", "", "the extra reference is missing"),
        ("License-File: LICENSE\n", "", "License-File is None, not LICENSE"),
    ],
)
def test_a_wheel_says_what_is_so(old: str, new: str, said: str) -> None:
    assert metadata_problems(METADATA, "1.0", ["reference"]) == []
    assert metadata_problems(METADATA.replace(old, new), "1.0", ["reference"]) == [said]


def test_tag_chart_and_fallback_name_one_release() -> None:
    assert disagreements(versions_in(ROOT)) == []
    assert disagreements(Versions("0.2.0", "0.2.0", "0.2.0.dev0", "v0.2.0")) == []
    assert len(disagreements(Versions("0.2.0", "0.1.0", "0.1.0.dev0"))) == 1
    assert len(disagreements(Versions("0.2.0", "0.2.0", "0.1.0.dev0"))) == 1
    assert len(disagreements(Versions("0.2.0", "0.2.0", "0.2.0"))) == 1
    assert len(disagreements(Versions("0.2.0", "0.2.0", "0.2.0.dev0", "v0.2.1"))) == 1


def test_the_changelog_of_this_project_has_its_form() -> None:
    assert problems_of((ROOT / "CHANGELOG.md").read_text()) == []


def test_a_version_that_is_released_has_its_section() -> None:
    assert problems_of(CHANGELOG, "0.2.0") == []
    assert problems_of(CHANGELOG, "0.3.0") == ["there is no section '## 0.3.0 - DATE' for what is being released"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("# Changelog\n", "# Changes\n"),
        ("## Unreleased\n", ""),
        ("## Unreleased", "## 0.3.0 - 2026-12-02"),
        ("## 0.1.0 - 2026-11-01", "## Unreleased"),
        ("## 0.1.0 - 2026-11-01", "## 0.1.0"),
        ("## 0.1.0 - 2026-11-01", "## 0.1.0 - 2026-13-01"),
        ("## 0.1.0 - 2026-11-01", "## 0.1.0.0.x - 2026-11-01"),
        ("## 0.1.0 - 2026-11-01", "## 0.3.0 - 2026-11-01"),
        ("### Fixed", "### Mended"),
        ("### Added\n\n- A thing", "### Fixed\n\n- A thing"),
        ("- Another.\n", ""),
        ("  in two lines.", "in two lines."),
        ("## Unreleased\n", "## Unreleased\n\nMuch.\n"),
    ],
)
def test_another_form_of_the_changelog_is_told(old: str, new: str) -> None:
    assert problems_of(CHANGELOG) == []
    assert problems_of(CHANGELOG.replace(old, new, 1)) != []
