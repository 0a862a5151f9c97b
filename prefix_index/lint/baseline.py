"""What is let pass: rules and paths by a settings file, findings that were there before by a baseline.

ignore: [under-block]            a settings file
exclude: ["tests/**"]
{"version": 1, "fingerprints": [...]}   a baseline: what was found when it was written
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Final

import yaml

from prefix_index.errors import PrefixIndexError
from prefix_index.lint.rules import RULES
from prefix_index.lint.types import Finding

_VERSION: Final = 1


class LintSettingsInvalid(PrefixIndexError):
    """A settings file or a baseline that cannot be used; `where` names it."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"{where}: {why}")
        self.where = where


@dataclass(frozen=True, slots=True)
class Settings:
    """Rules that are not asked for, and paths that are not looked at (as in `.gitignore`, without exceptions)."""

    ignore: frozenset[str] = frozenset()
    exclude: Sequence[str] = ()

    def excludes(self, path: str) -> bool:
        """Whether a path is not looked at: it fits a pattern, or lies in a folder of that name."""
        pure = PurePosixPath(path)
        inside = {pure.as_posix(), *(parent.as_posix() for parent in pure.parents)}
        return any(
            fnmatchcase(one, pattern.rstrip("/")) or fnmatchcase(PurePosixPath(one).name, pattern.rstrip("/"))
            for pattern in self.exclude
            for one in inside
        )


def read_settings(text: str, where: str) -> Settings:
    """A settings file. Raises `LintSettingsInvalid`."""
    try:
        given = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise LintSettingsInvalid(where, f"no YAML: {str(error).partition(chr(10))[0]}") from None
    if not isinstance(given, dict) or set(given) - {"ignore", "exclude"}:
        raise LintSettingsInvalid(where, "it may hold `ignore` (rules) and `exclude` (paths), and nothing else")
    ignore, exclude = given.get("ignore") or [], given.get("exclude") or []
    if not all(isinstance(one, list) and all(isinstance(item, str) for item in one) for one in (ignore, exclude)):
        raise LintSettingsInvalid(where, "`ignore` and `exclude` are lists of words")
    return Settings(known_rules(ignore, where), tuple(exclude))


def known_rules(names: Iterable[str], where: str) -> frozenset[str]:
    """Names of rules. Raises `LintSettingsInvalid` where there is no such rule."""
    found = frozenset(names)
    unknown = sorted(found - set(RULES))
    if unknown:
        raise LintSettingsInvalid(where, f"there is no rule {unknown[0]!r}: {', '.join(RULES)}")
    return found


def read_baseline(text: str, where: str) -> Counter[str]:
    """The fingerprints in a baseline. Raises `LintSettingsInvalid`."""
    try:
        given = json.loads(text)
    except ValueError:
        raise LintSettingsInvalid(where, "no JSON") from None
    listed = given.get("fingerprints") if isinstance(given, dict) and given.get("version") == _VERSION else None
    if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
        raise LintSettingsInvalid(where, "no baseline of this linter: --write-baseline makes one")
    return Counter(listed)


def baseline_of(findings: Iterable[Finding]) -> str:
    """A baseline that lets these pass."""
    listed = sorted(one.fingerprint for one in findings)
    return json.dumps({"version": _VERSION, "fingerprints": listed}, indent=1) + "\n"


def without_known(findings: Iterable[Finding], known: Counter[str]) -> list[Finding]:
    """Those that are not in the baseline."""
    left = Counter(known)
    fresh = []
    for one in findings:
        if left[one.fingerprint]:
            left[one.fingerprint] -= 1
        else:
            fresh.append(one)
    return fresh
