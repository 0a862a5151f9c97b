"""What is in a wheel and in a source distribution, against what the commit has.

    the commit   gateway/... tests/... docs/...   --(all of it, but for a few)-->   prefixgate-V.tar.gz
                 `- the four packages             --(every file, nothing else)-->   prefixgate-V-py3-none-any.whl

So no list of data files is kept here, which would be out of date: a Lua script, a page, a font or a migration that is
in the commit and not in the wheel is missing, and a test or a cache that is in the wheel and not in the commit is too
much.
"""

import tarfile
import zipfile
from collections.abc import Iterable
from email import message_from_string
from pathlib import Path
from typing import Final

ROOMS: Final = ("gateway", "prefix_index", "backends", "billing")
NOT_IN_SDIST: Final = (".ci/", "bench/results/", ".git_archival.txt", ".gitattributes")
"""Of the commit, and of no use to who builds from the source distribution."""
_OF_A_WHEEL: Final = ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")


def wheel_problems(names: Iterable[str], committed: Iterable[str]) -> list[str]:
    """What is too much in a wheel, or is missing; names of files, as the wheel and git have them."""
    wanted = {name for name in committed if name.partition("/")[0] in ROOMS}
    there, described = set(), set()
    for name in names:
        folder, _, rest = name.partition("/")
        if folder.endswith(".dist-info"):
            described.add(rest)
        else:
            there.add(name)
    found = [f"not in the wheel: {name}" for name in sorted(wanted - there)]
    found += [f"in the wheel, and not of a package of this commit: {name}" for name in sorted(there - wanted)]
    return found + [f"the wheel's {name} is missing" for name in _OF_A_WHEEL if name not in described]


def sdist_problems(names: Iterable[str], committed: Iterable[str]) -> list[str]:
    """The same of a source distribution, whose names begin with a folder of its own."""
    wanted = {name for name in committed if not name.startswith(NOT_IN_SDIST)}
    there = {name.partition("/")[2] for name in names} - {"PKG-INFO"}
    found = [f"not in the source distribution: {name}" for name in sorted(wanted - there)]
    return found + [f"in the source distribution, and not of this commit: {name}" for name in sorted(there - wanted)]


def metadata_problems(text: str, version: str, extras: Iterable[str]) -> list[str]:
    """What a wheel says of itself that is not so, or does not say."""
    metadata = message_from_string(text)
    wanted = {"Name": "prefixgate", "Version": version, "License-Expression": "Apache-2.0", "License-File": "LICENSE"}
    found = [f"{name} is {metadata[name]}, not {value}" for name, value in wanted.items() if metadata[name] != value]
    offered = set(metadata.get_all("Provides-Extra", []))
    found += [f"the extra {extra} is missing" for extra in sorted(set(extras) - offered)]
    for line in metadata.get_all("Requires-Dist", []):
        if "extra ==" not in line and "==" not in line:
            found.append(f"{line} is not pinned")
        if line.startswith("torch") and "extra ==" not in line:
            found.append("torch is needed without an extra")
    return found


def names_in_wheel(wheel: Path) -> list[str]:
    """All files of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return [name for name in archive.namelist() if not name.endswith("/")]


def names_in_sdist(sdist: Path) -> list[str]:
    """All files of a source distribution."""
    with tarfile.open(sdist) as archive:
        return [member.name for member in archive.getmembers() if member.isfile()]


def metadata_of(wheel: Path) -> str:
    """The text of a wheel's METADATA."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return archive.read(name).decode()
