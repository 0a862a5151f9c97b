"""`make release-check`: whether the last commit can be released; `python -m tests.release --help` has the parts.

    versions  changelog, tag, chart          licences  of all that is needed to run
    build     twice, and from the sdist      bill      of materials, CycloneDX
    contents  of both files; twine           suite     against the wheel, from another folder
    install   without torch; the commands    demo      of the wheel with the extra `reference`

What a release consists of lies in `build/release` then, with its checksums. What fails is said at the end, and all that
could be checked without it has been.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from tests.release.bill import write_bill
from tests.release.builds import Built, Commit, build, check_contents, clone_of, commit_of, digest
from tests.release.changelog import problems_of
from tests.release.installed import (
    Environment,
    check_commands,
    check_licences,
    copy_tests,
    extras_without_torch,
    run_demo,
    run_suite,
)
from tests.release.programs import CheckFailed, output_of
from tests.release.versions import disagreements, versions_in

ROOT: Final = Path(__file__).parents[2]
OPTIONAL: Final = ("install", "licences", "bill", "suite", "demo")
SUITE_TIMEOUT_S: Final = 3600.0
T = TypeVar("T")


@dataclass(slots=True)
class Report:
    """Which parts failed."""

    failed: list[str] = field(default_factory=list)

    def run(self, name: str, part: Callable[[list[str]], T]) -> T | None:
        """What a part gives; None where it failed. It appends what is to be said of it to the list it is given."""
        words: list[str] = []
        given: T | None = None
        began_s = time.monotonic()
        try:
            given = part(words)
        except CheckFailed as failure:
            self.failed.append(name)
            words = ["FAILED", str(failure)]
        say(f"{name:<9} {time.monotonic() - began_s:6.1f} s  {' '.join(words)}")
        return given


def say(line: str) -> None:
    """At once, also into a pipe."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


@dataclass(frozen=True, slots=True)
class Release:
    """What the parts work with."""

    commit: Commit
    tools: Path
    folder: Path
    """For all that is thrown away afterwards."""
    output: Path
    without: frozenset[str]
    workers: int
    paths: tuple[str, ...]

    @property
    def clone(self) -> Path:
        return self.folder / "one"


def check_versions(release: Release, words: list[str]) -> None:
    """Changelog, tag, chart and fallback."""
    commit = release.commit
    released = None if commit.tag is None else commit.tag.removeprefix("v")
    found = problems_of((release.clone / "CHANGELOG.md").read_text(), released)
    found += disagreements(versions_in(release.clone, commit.tag))
    if found:
        raise CheckFailed("\n".join(found))
    words += [commit.sha[:12], commit.tag or "(no tag of a version: not a release)"]
    if commit.uncommitted:
        words.append(f"; {commit.uncommitted} changed files are not in it")


def check_build(release: Release, words: list[str]) -> Built:
    """Both files, the same bytes each time; they become the output."""
    built = build(release.commit, release.tools, release.folder)
    if release.commit.tag not in (None, f"v{built.version}"):
        raise CheckFailed(f"the tag {release.commit.tag} made the version {built.version}")
    for file in (built.sdist, built.wheel):
        shutil.copy(file, release.output)
        words.append(f"{file.name} ({file.stat().st_size:,} bytes)")
    return built


def check_files(release: Release, built: Built, words: list[str]) -> None:
    """Contents, and what an index of packages would say to them."""
    project = tomllib.loads((release.clone / "pyproject.toml").read_text())["project"]
    words.append(check_contents(built, release.clone, list(project["optional-dependencies"])))
    output_of(release.tools, "-m", "twine", "check", "--strict", built.sdist, built.wheel, cwd=release.folder)
    words.append("; twine: ok")


def environment_of(release: Release, name: str) -> Environment:
    """A new one, of this interpreter."""
    environment = Environment(release.folder / name, release.tools)
    environment.make(sys.executable)
    return environment


def check_install(release: Release, built: Built, words: list[str]) -> Environment:
    """As a user would, without torch; the commands run from another folder."""
    elsewhere = release.folder / "elsewhere"
    elsewhere.mkdir()
    plain = environment_of(release, "plain")
    plain.install(f"{built.wheel}[{','.join(extras_without_torch(release.clone))}]")
    words.append(check_commands(plain, built.version, elsewhere))
    return plain


def check_its_licences(release: Release, plain: Environment, words: list[str]) -> None:
    """Of all that the gateway needs to run, its small extras included; they are listed in the output."""
    licences = check_licences(plain, extras_without_torch(release.clone))
    (release.output / "licences.json").write_text(json.dumps(licences, indent=1) + "\n")
    words.append(f"{len(licences)} distributions, each with a licence that is allowed")


def check_bill(release: Release, built: Built, plain: Environment, words: list[str]) -> None:
    """It goes into the output."""
    file = release.output / f"prefixgate-{built.version}.cdx.json"
    words.append(write_bill(release.commit, built, release.tools, plain.python, file))


def check_suite(release: Release, built: Built, plain: Environment, words: list[str]) -> None:
    """Last of those with this environment: the tests' own tools are put into it."""
    plain.install(f"{built.wheel}[dev,embedded]")
    folder = copy_tests(release.clone, release.folder / "checkout")
    words.append(run_suite(plain, folder, release.workers, release.paths, SUITE_TIMEOUT_S))


def check_demo(release: Release, built: Built, words: list[str]) -> None:
    """The demo as a user of the wheel would run it, and the licences of what that brings."""
    whole = environment_of(release, "whole")
    if index := os.environ.get("TORCH_INDEX"):
        whole.install("torch", index=index)
    whole.install(f"{built.wheel}[embedded,reference]")
    licences = check_licences(whole, ("embedded", "reference"))
    words.append(f"{len(licences)} distributions with the extra `reference`, allowed;")
    elsewhere = release.folder / "demo"
    elsewhere.mkdir()
    words.append(run_demo(whole, elsewhere))


def write_checksums(output: Path) -> None:
    """`sha256sum --check SHA256SUMS` reads it."""
    files = sorted(file for file in output.iterdir() if file.name != "SHA256SUMS")
    (output / "SHA256SUMS").write_text("".join(f"{digest(file)}  {file.name}\n" for file in files))


def check(release: Release) -> list[str]:
    """All parts that are wanted and whose own needs did not fail; the names of those that failed."""
    report = Report()
    report.run("versions", lambda words: check_versions(release, words))
    built = report.run("build", lambda words: check_build(release, words))
    if built is not None:
        report.run("contents", lambda words: check_files(release, built, words))
        if "install" not in release.without:
            check_installed(release, built, report)
        if "demo" not in release.without:
            report.run("demo", lambda words: check_demo(release, built, words))
        write_checksums(release.output)
    return report.failed


def check_installed(release: Release, built: Built, report: Report) -> None:
    """The parts that need the wheel installed, without torch."""
    plain = report.run("install", lambda words: check_install(release, built, words))
    if plain is None:
        return
    if "licences" not in release.without:
        report.run("licences", lambda words: check_its_licences(release, plain, words))
    if "bill" not in release.without:
        report.run("bill", lambda words: check_bill(release, built, plain, words))
    if "suite" not in release.without:
        report.run("suite", lambda words: check_suite(release, built, plain, words))


def main() -> int:
    """Exit status 1 where a part failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.release", description="Can the last commit be released?")
    parser.add_argument("--tools", type=Path, required=True, help="interpreter with requirements.txt and the builders")
    parser.add_argument("--without", action="append", default=[], choices=OPTIONAL, help="leave this part out")
    parser.add_argument("--workers", type=int, default=3, help="processes of the suite")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "release", help="what a release consists of")
    parser.add_argument("paths", nargs="*", help="parts of the suite, as tests/billing; default: all")
    given = parser.parse_args()
    shutil.rmtree(given.output, ignore_errors=True)
    given.output.mkdir(parents=True)
    with tempfile.TemporaryDirectory(prefix="prefixgate-release-") as folder:
        release = Release(
            *(commit_of(ROOT), given.tools.absolute(), Path(folder).resolve(), given.output),
            *(frozenset(given.without), given.workers, tuple(given.paths)),
        )
        clone_of(release.commit, release.clone)
        failed = check(release)
    say(f"failed: {', '.join(failed)}" if failed else f"all of it is in {given.output}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
