"""A wheel and a source distribution of the last commit, built as often as it takes to know that they are what it says.

    HEAD --clone--> one/ --sdist--> prefixgate-V.tar.gz --wheel--> |
                         --wheel--------------------------------> |  the same bytes
    HEAD --clone--> two/ --sdist, wheel, at another time--------> |

The clone has what is committed, and no more: not the changes of this working tree, nor what lies about in it.
"""

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.release.contents import (
    metadata_of,
    metadata_problems,
    names_in_sdist,
    names_in_wheel,
    sdist_problems,
    wheel_problems,
)
from tests.release.programs import CheckFailed, output_of


@dataclass(frozen=True, slots=True)
class Commit:
    """What is released: the commit, its tag where it has one of a version, and the changes that are not in it."""

    checkout: Path
    sha: str
    committed_at_s: int
    tag: str | None
    uncommitted: int


@dataclass(frozen=True, slots=True)
class Built:
    """The two files of a release, and the version that they have."""

    sdist: Path
    wheel: Path
    version: str


def commit_of(checkout: Path) -> Commit:
    """The last commit of a checkout. Raises `CheckFailed` where it is none: a release is of a commit."""
    if not (checkout / ".git").exists():
        raise CheckFailed(f"{checkout} is no checkout of git, and a release is of a commit")
    sha, at_s = output_of("git", "log", "-1", "--format=%H %ct", cwd=checkout).split()
    tags = output_of("git", "tag", "--points-at", "HEAD", "--list", "v[0-9]*.[0-9]*.[0-9]*", cwd=checkout).split()
    if len(tags) > 1:
        raise CheckFailed(f"the commit has several tags of versions: {', '.join(tags)}")
    changed = output_of("git", "status", "--porcelain", cwd=checkout).splitlines()
    return Commit(checkout, sha, int(at_s), tags[0] if tags else None, len(changed))


def clone_of(commit: Commit, folder: Path) -> None:
    """What is committed, and nothing else, in a new folder."""
    output_of("git", "clone", "--quiet", "--no-hardlinks", commit.checkout, folder, cwd=folder.parent)


def committed_files(clone: Path) -> list[str]:
    """The names of all files of a clone's commit."""
    return output_of("git", "ls-files", "-z", cwd=clone).rstrip("\0").split("\0")


def build(commit: Commit, python: Path, folder: Path) -> Built:
    """Both files in `folder`, each built twice. Raises `CheckFailed` where two that must be the same are not.

    `folder/one` is a clone of the commit; `python` has the builders that pyproject.toml names. What is built says no
    time but the commit's.
    """
    env = {"SOURCE_DATE_EPOCH": str(commit.committed_at_s)}
    clones = [folder / "one", folder / "two"]
    clone_of(commit, clones[1])
    first, second, from_sdist = folder / "first", folder / "second", folder / "from-sdist"
    for clone, out, umask in zip(clones, (first, second), ("022", "077"), strict=True):
        words = f"umask {umask}; exec '{python}' -m build --no-isolation --sdist --wheel --outdir '{out}' '{clone}'"
        output_of("bash", "-c", words, cwd=folder, env=env)
    (sdist,), (wheel,) = first.glob("*.tar.gz"), first.glob("*.whl")
    unpacked = folder / "unpacked"
    shutil.unpack_archive(sdist, unpacked, filter="data")
    output_of(
        *(python, "-m", "build", "--no-isolation", "--wheel", "--outdir", from_sdist),
        next(unpacked.iterdir()),
        cwd=folder,
        env=env,
    )
    for what, one, other in (
        ("two builds of the source distribution", sdist, second / sdist.name),
        ("two builds of the wheel", wheel, second / wheel.name),
        ("the wheel of the checkout and that of the source distribution", wheel, from_sdist / wheel.name),
    ):
        if not other.exists() or digest(one) != digest(other):
            raise CheckFailed(f"{what} are not the same bytes: {one.name}")
    return Built(sdist, wheel, wheel.name.split("-")[1])


def check_contents(built: Built, clone: Path, extras: list[str]) -> str:
    """What is in the two files. Raises `CheckFailed` where that is too much or too little; says how much it is."""
    committed = committed_files(clone)
    in_wheel, in_sdist = names_in_wheel(built.wheel), names_in_sdist(built.sdist)
    found = wheel_problems(in_wheel, committed)
    found += sdist_problems(in_sdist, committed)
    found += metadata_problems(metadata_of(built.wheel), built.version, extras)
    if found:
        raise CheckFailed("\n".join(found))
    return f"{len(in_wheel)} files in the wheel, {len(in_sdist)} in the source distribution"


def digest(file: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    return hashlib.sha256(file.read_bytes()).hexdigest()
