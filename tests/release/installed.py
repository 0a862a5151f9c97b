"""The wheel in environments of its own: installed as a user would, and under test from a folder without packages."""

import json
import shutil
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError
from pathlib import Path
from typing import Final

from packaging.utils import canonicalize_name

from tests.release.licences import closure, declared, objections
from tests.release.programs import CheckFailed, output_of

COPIED: Final = ("tests", "bench", "docs", "helm", "README.md", "CHANGELOG.md", "Makefile", "pyproject.toml")
"""What tests read of a checkout. None of it is a package of the wheel."""
_SMOKE: Final = """
from importlib.metadata import packages_distributions
from importlib.util import find_spec

for name in ("gateway", "prefix_index", "backends", "billing"):
    assert packages_distributions()[name] == ["prefixgate"], name
    assert "site-packages" in find_spec(name).origin, find_spec(name).origin
assert find_spec("torch") is None, "torch came without the extra `reference`"
"""


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment without pip, so that nothing is in it but what was asked for."""

    folder: Path
    tools: Path
    """The interpreter whose pip fills it."""

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def make(self, base: str | Path) -> None:
        """A new one of the interpreter `base`; what was there is gone."""
        shutil.rmtree(self.folder, ignore_errors=True)
        output_of(base, "-m", "venv", "--without-pip", self.folder, cwd=self.folder.parent)

    def install(self, *what: str, index: str | None = None) -> None:
        """As `pip install` does; `index` where another one is asked than by default."""
        where = ("--index-url", index) if index else ()
        quiet = ("--quiet", "--disable-pip-version-check")
        pip = (self.tools, "-m", "pip", "--python", self.python, "install", *quiet, *where)
        output_of(*pip, *what, cwd=self.folder.parent, timeout_s=1800)

    def distributions(self) -> dict[str, Distribution]:
        """What is installed in it, by canonical name."""
        (site,) = self.folder.glob("lib/python3.*/site-packages")
        found = Distribution.discover(path=[str(site)])
        return {canonicalize_name(each.metadata["Name"]): each for each in found}


def extras_without_torch(checkout: Path) -> list[str]:
    """Of pyproject.toml: all but the reference engine's, and the tests'."""
    project = tomllib.loads((checkout / "pyproject.toml").read_text())["project"]
    return sorted(set(project["optional-dependencies"]) - {"reference", "dev"})


def check_commands(environment: Environment, version: str, elsewhere: Path) -> str:
    """The console script runs from another folder, is of this version, and torch is not there."""
    script = environment.folder / "bin" / "prefixgate"
    said = output_of(script, "--version", cwd=elsewhere).strip()
    if said != f"prefixgate {version}":
        raise CheckFailed(f"the wheel of {version} says that it is {said!r}")
    output_of(script, "--help", cwd=elsewhere)
    output_of(environment.python, "-c", _SMOKE, cwd=elsewhere)
    return said


def check_licences(environment: Environment, extras: Iterable[str]) -> dict[str, str]:
    """The licence of everything that the gateway needs; raises `CheckFailed` where one may not be, or is unknown."""
    installed = environment.distributions()

    def find(name: str) -> Distribution:
        try:
            return installed[name]
        except KeyError:
            raise PackageNotFoundError(name) from None

    findings = sorted(
        (declared(name, each) for name, each in closure("prefixgate", extras, find)), key=lambda one: one.name
    )
    if found := objections(findings):
        raise CheckFailed("\n".join(found))
    return {f"{one.name} {one.version}": one.expression or "" for one in findings}


def copy_tests(clone: Path, folder: Path) -> Path:
    """A folder from which the suite runs against what is installed: there is no `gateway/` beside it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in COPIED:
        if (clone / name).is_dir():
            shutil.copytree(clone / name, folder / name)
        else:
            shutil.copy(clone / name, folder / name)
    return folder


def run_suite(environment: Environment, folder: Path, workers: int, paths: Iterable[str], timeout_s: float) -> str:
    """The suite, or parts of it, against the installed wheel; says what pytest says at the end."""
    output = output_of(
        *(environment.python, "-m", "pytest", "-q", "-p", "tests.release.wheel_only", "-n", str(workers)),
        *("--dist", "worksteal", "-p", "no:cacheprovider", *paths),
        cwd=folder,
        timeout_s=timeout_s,
    )
    lines = output.splitlines()
    told = [line for line in lines if line.startswith(("under test: ", "left out: "))]
    return "; ".join([lines[-1].strip("= "), *told])


def run_demo(environment: Environment, elsewhere: Path) -> str:
    """`prefixgate demo --quick` on the model that needs no download; says what came of it."""
    file = elsewhere / "demo.json"
    command = (environment.folder / "bin" / "prefixgate", "demo", "--quick", "--model", "tiny", "--json", file)
    output_of(*command, cwd=elsewhere, timeout_s=900)
    outcome = json.loads(file.read_text())
    if not outcome["ledger_agrees"]:
        raise CheckFailed("the demo's ledger does not agree with its engines")
    return f"demo: {outcome['computed_ratio']:.2f} of what round robin computes; ledger and engines agree"
