"""Licences of dependencies: read as SPDX writes them, known to be fine or refused."""

import tomllib
from email.message import Message
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.release.licences import ALLOWED, Finding, closure, declared, objections, refused


class Written(Distribution):
    """A distribution that is its metadata alone."""

    def __init__(self, **fields: str | list[str]) -> None:
        message = Message()
        for name, given_value in {"Version": "1", **fields}.items():
            for value in [given_value] if isinstance(given_value, str) else given_value:
                message[name.replace("_", "-")] = value
        self._text = message.as_string()

    def read_text(self, filename: str) -> str | None:
        return self._text if filename == "METADATA" else None

    def locate_file(self, path: Any) -> Path:
        raise FileNotFoundError(path)


def test_what_the_project_names_as_its_dependencies_has_licences_that_are_allowed() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    names = [canonicalize_name(Requirement(line).name) for line in project["dependencies"]]
    assert objections(declared(name, distribution(name)) for name in names) == []  # `make release-check` follows them


@pytest.mark.parametrize(
    ("fields", "expression"),
    [
        ({"License_Expression": "MIT AND ISC"}, "MIT AND ISC"),
        ({"License": "MIT License\n\nCopyright"}, "MIT"),
        ({"License": "Apache-2.0", "Classifier": "License :: OSI Approved :: BSD License"}, "Apache-2.0"),
        ({"Classifier": "License :: OSI Approved :: MIT License"}, "MIT"),
        ({"Classifier": ["License :: OSI Approved :: MIT License", "License :: OSI Approved :: BSD License"]}, None),
        ({"Classifier": "License :: OSI Approved :: BSD License"}, None),  # of how many clauses?
        ({"License": "see the file"}, None),
        ({}, None),
    ],
)
def test_a_licence_is_what_the_metadata_says_or_unknown(fields: dict[str, Any], expression: str | None) -> None:
    assert declared("x", Written(Name="x", **fields)).expression == expression


def test_what_is_needed_is_followed_through_extras_and_markers_and_round_in_circles() -> None:
    there = {
        "a": Written(Name="a", Requires_Dist=["b[more]", "c; extra == 'big'", "d; python_version < '3'"]),
        "b": Written(Name="b", Requires_Dist=["a[big]", "e; extra == 'more'"]),
        "c": Written(Name="c"),
        "e": Written(Name="e"),
    }
    assert sorted(name for name, _ in closure("a", (), there.__getitem__)) == ["a", "b", "c", "e"]

    def lost(name: str) -> Distribution:
        raise PackageNotFoundError(name)

    with pytest.raises(PackageNotFoundError):
        list(closure("a", (), lost))


@pytest.mark.parametrize(
    ("expression", "wrong"),
    [
        ("MIT", []),
        ("GPL-3.0-only", ["GPL-3.0-only"]),
        ("MIT OR GPL-3.0-only", []),
        ("MIT AND GPL-3.0-only", ["GPL-3.0-only"]),
        ("GPL-3.0-only OR ISC AND Zlib", []),
        ("(MIT OR GPL-3.0-only) AND AGPL-3.0-only", ["AGPL-3.0-only"]),
        ("Apache-2.0 WITH LLVM-exception AND MIT", []),
        ("GPL-3.0-only WITH GCC-exception-3.1", ["GPL-3.0-only WITH GCC-exception-3.1"]),
    ],
)
def test_an_expression_is_refused_for_what_stands_in_its_way(expression: str, wrong: list[str]) -> None:
    assert refused(expression) == wrong


@pytest.mark.parametrize("expression", ["", "MIT AND", "(MIT", "MIT)", "MIT ISC", "OR"])
def test_an_expression_that_cannot_be_read_is_refused(expression: str) -> None:
    assert refused(expression) != []


_TREES = st.recursive(
    st.sampled_from([*sorted(ALLOWED), "GPL-3.0-only", "SSPL-1.0"]),
    lambda inner: st.tuples(inner, st.sampled_from(["AND", "OR"]), inner),
    max_leaves=8,
)


def written(tree: Any) -> str:
    return tree if isinstance(tree, str) else f"({written(tree[0])}) {tree[1]} ({written(tree[2])})"


def fine(tree: Any) -> bool:
    if isinstance(tree, str):
        return tree in ALLOWED
    both = fine(tree[0]), fine(tree[2])
    return all(both) if tree[1] == "AND" else any(both)


@given(_TREES)
def test_an_expression_is_fine_exactly_if_its_tree_is(tree: Any) -> None:
    assert (refused(written(tree)) == []) == fine(tree)


def test_who_is_unknown_not_allowed_or_allowed_for_others_is_named() -> None:
    said = objections(
        [
            Finding("a", "1", None),
            Finding("b", "2", "GPL-3.0-only"),
            Finding("c", "3", "LGPL-3.0-only"),
            Finding("psycopg", "4", "LGPL-3.0-only"),
            Finding("nvidia-cublas", "5", "LicenseRef-NVIDIA-Proprietary"),
        ]
    )
    assert [line.partition(":")[0] for line in said] == ["a 1", "b 2", "c 3"]
