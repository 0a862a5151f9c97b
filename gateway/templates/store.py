"""The folder of templates: what is in force, taken over file by file when something changes.

    folder --every second: names, times, sizes--changed?--> files --each: parse--> versions in force
                                                              `-- invalid: the version from before stays; /health says

    support@3.yaml             in force: called as support@3, and as support while no version is newer
    support@2.yaml.retired     not called any more; its number is not given to another content

A version never changes: a file that says something else under a number that is in force is refused, in the folder and
over HTTP, since rows of the ledger name what they were rendered from. Who may call it and its samples may change.
Another replica's change arrives by the folder. Files are read in a thread; what serves sees whole tables only.
"""

import asyncio
import os
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gateway.errors import TemplateNotAllowed, TemplateNotFound
from gateway.log_lines import LOGGER
from gateway.template_metrics import TemplateMetrics
from gateway.templates.file import TemplateFileInvalid, named_text, read_kept, read_kept_file
from gateway.templates.types import KeptTemplate, Reference, version_key
from gateway.whole_file import write_whole

_SUFFIXES: Final = (".yaml", ".yml", ".json")
RETIRED: Final = ".retired"
MOST_FILES: Final = 10_000
_FRESH_NS: Final = 2_000_000_000

_Stamp = tuple[int, int, int]


class VersionExists(Exception):
    """The version is there, with another content."""


@dataclass(frozen=True, slots=True)
class _File:
    stamp: _Stamp
    """Changed at, length, inode."""
    kept: KeptTemplate | None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class _Table:
    """What is in force at one moment; made anew for each change, and never changed."""

    versions: Mapping[tuple[str, str], KeptTemplate] = field(default_factory=dict)
    named: Mapping[str, Sequence[KeptTemplate]] = field(default_factory=dict)
    """All versions of a name, the newest first."""
    retired: Mapping[tuple[str, str], KeptTemplate] = field(default_factory=dict)


class TemplateStore:
    """The templates of one folder. Raises `TemplateFileInvalid` at the start for a folder that cannot be used."""

    def __init__(self, folder: Path, metrics: TemplateMetrics) -> None:
        self.folder = folder
        self._metrics = metrics
        self._files: dict[str, _File] = {}
        self._fresh: set[str] = set()
        self._is_away = False
        self._table = _Table()
        self._writing = threading.Lock()  # reloads and edits run in threads; none awaits anything
        self.problems: tuple[str, ...] = ()
        if not folder.is_dir():
            raise TemplateFileInvalid(f"templates_dir: {folder} is no folder")
        self.reload()
        if self.problems:
            raise TemplateFileInvalid(f"templates_dir: {'; '.join(self.problems)}")

    def find(self, reference: Reference, tenant: str) -> KeptTemplate:
        """The template that a tenant calls: by a name alone, the newest version that is for it. O(versions of a name).

        Raises `TemplateNotFound` or `TemplateNotAllowed`.
        """
        versions = self._table.named.get(reference.name, ())
        if reference.version is not None:
            versions = [one for one in versions if one.version == reference.version]
        allowed = next((one for one in versions if one.allows(tenant)), None)
        if allowed is not None:
            return allowed
        if not versions:
            raise TemplateNotFound(self._why_not(reference, tenant))
        raise TemplateNotAllowed(f"the template {reference} is not for this tenant")

    def version(self, reference: Reference) -> KeptTemplate | None:
        """As `find`, for the operator."""
        if reference.version is None:
            return next(iter(self._table.named.get(reference.name, ())), None)
        return self._table.versions.get((reference.name, reference.version))

    @property
    def in_force(self) -> list[KeptTemplate]:
        """All versions, by name and number."""
        return sorted(self._table.versions.values(), key=lambda one: (one.name, version_key(one.version)))

    @property
    def retired(self) -> list[str]:
        """The versions that were retired, as references."""
        return [one.reference for one in self._table.retired.values()]

    def reload(self) -> bool:
        """Read what has changed in the folder; whether anything had. Blocks: for a thread."""
        with self._writing:
            return self._reload()

    def put(self, text: str, reference: Reference) -> KeptTemplate:
        """Write a version into the folder, and take it over. Doing it twice changes nothing. Blocks: for a thread.

        Raises `TemplateFileInvalid` and `VersionExists`.
        """
        assert reference.version is not None
        named = {"name": reference.name, "version": reference.version}
        kept = read_kept(text, str(reference), named)
        if (kept.name, kept.version) != (reference.name, reference.version):
            raise TemplateFileInvalid(f"{reference}: the text names {kept.reference}")
        with self._writing:
            self._reload()
            key = (kept.name, kept.version)
            known = self._table.versions.get(key) or self._table.retired.get(key)
            if known is not None and known.digest != kept.digest:
                raise VersionExists(f"{kept.reference} is there with another content; give this one another version")
            if key not in self._table.retired and (known is None or not _says_the_same(known, kept)):
                self._write(key, named_text(text, named))
        return kept

    def retire(self, reference: Reference) -> None:
        """Take a version out of force for good. Doing it twice changes nothing. Raises `TemplateNotFound`."""
        assert reference.version is not None
        key = (reference.name, reference.version)
        with self._writing:
            self._reload()
            if key in self._table.retired:
                return
            path = self._path_of(key)
            if path is None:
                raise TemplateNotFound(self._why_not(reference))
            with suppress(FileNotFoundError):  # another worker was as quick
                path.rename(path.with_name(path.name + RETIRED))
            self._reload()

    def _write(self, key: tuple[str, str], text: str) -> None:
        """Into the file of the version; a new one only where no other replica, and no other template, has its name."""
        path, new = self._path_of(key), self.folder / f"{key[0]}@{key[1]}.yaml"
        try:
            write_whole(path or new, text, is_new=path is None and self._holds_a_template(new.name))
        except FileExistsError:
            raise VersionExists(f"{new.name} is there with another content; give this one another version") from None
        self._reload()

    def _holds_a_template(self, name: str) -> bool:
        """Whether a file may hold one: a file that is known to hold none may be written over."""
        known = self._files.get(name)
        return known is None or known.kept is not None

    def _path_of(self, key: tuple[str, str]) -> Path | None:
        for name, file in self._files.items():
            if file.kept is not None and (file.kept.name, file.kept.version) == key and not name.endswith(RETIRED):
                return self.folder / name
        return None

    def _why_not(self, reference: Reference, tenant: str | None = None) -> str:
        """To an operator (None), or to a tenant, who is told of no version that is not for it."""
        if (reference.name, reference.version) in self._table.retired:
            return f"the template {reference} was retired"
        versions = self._table.named.get(reference.name, ())
        known = next((one for one in versions if tenant is None or one.allows(tenant)), None)
        if known is None:
            return f"there is no template {reference}"
        return f"the template {reference.name} has no version {reference.version}; the newest is {known.version}"

    def _reload(self) -> bool:
        try:
            stamps = self._stamps()
        except OSError as error:
            self._say((f"{self.folder}: {error.strerror}",))
            self._is_away = True
            return False
        changed = [name for name, stamp in stamps.items() if self._stamp(name) != stamp]
        changed += [name for name in self._fresh if name in stamps and name not in changed and self._is_another(name)]
        self._fresh = {name for name, stamp in stamps.items() if time.time_ns() - stamp[0] < _FRESH_NS}
        gone = self._files.keys() - stamps.keys()
        if not changed and not gone and not self._is_away:
            return False
        self._is_away = False
        for name in gone:
            del self._files[name]
        for name in changed:
            self._files[name] = self._read(name, stamps[name])
        self._take_over()
        return True

    def _is_another(self, name: str) -> bool:
        """Whether a file that was written a moment ago has changed since, which its time may not show."""
        try:
            now = read_kept_file(self.folder / name)
        except TemplateFileInvalid as error:
            return self._files[name].problem != str(error)
        known = self._files[name]
        return known.problem is None and (known.kept is None or not _says_the_same(known.kept, now))

    def _stamp(self, name: str) -> _Stamp | None:
        known = self._files.get(name)
        return None if known is None else known.stamp

    def _stamps(self) -> dict[str, _Stamp]:
        found: dict[str, _Stamp] = {}
        with os.scandir(self.folder) as entries:
            for entry in entries:
                if entry.name.removesuffix(RETIRED).endswith(_SUFFIXES) and not entry.name.startswith("."):
                    with suppress(FileNotFoundError):
                        stat = entry.stat()
                        found[entry.name] = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        if len(found) > MOST_FILES:
            LOGGER.warning("more than %d templates: the last are left out", MOST_FILES)
        return dict(sorted(found.items())[:MOST_FILES])

    def _read(self, name: str, stamp: _Stamp) -> _File:
        before = self._files.get(name)
        in_force = None if before is None else before.kept
        try:
            kept = read_kept_file(self.folder / name)
        except TemplateFileInvalid as error:
            return _File(stamp, in_force, str(error))
        if in_force is not None and in_force.reference == kept.reference and in_force.digest != kept.digest:
            why = f"{name}: {kept.reference} is in force with another content; give the change another version"
            return _File(stamp, in_force, why)
        return _File(stamp, kept)

    def _take_over(self) -> None:
        versions: dict[tuple[str, str], KeptTemplate] = {}
        retired: dict[tuple[str, str], KeptTemplate] = {}
        named: dict[str, list[KeptTemplate]] = {}
        problems = [file.problem for file in self._files.values() if file.problem is not None]
        for name, file in sorted(self._files.items()):
            kept = file.kept
            if kept is None:
                continue
            table = retired if name.endswith(RETIRED) else versions
            other = table.setdefault((kept.name, kept.version), kept)
            if other.digest != kept.digest:
                problems.append(f"{name}: {kept.reference} is in another file too, with another content")
        for kept in sorted(versions.values(), key=lambda one: version_key(one.version), reverse=True):
            named.setdefault(kept.name, []).append(kept)
        self._table = _Table(versions, named, retired)
        self._say(tuple(problems))

    def _say(self, problems: tuple[str, ...]) -> None:
        new = [one for one in problems if one not in self.problems]
        for one in new:
            LOGGER.error("a template cannot be used, what was in force stays in force: %s", one)
        if new or problems != self.problems or not problems:
            self._metrics.reloads("invalid" if new else "taken").inc()
        self.problems = problems


async def watch_templates(store: TemplateStore | None, interval_s: float) -> None:
    """Take over changes of the folder, until cancelled; returns at once where there is none."""
    while store is not None:
        await asyncio.sleep(interval_s)
        await asyncio.to_thread(store.reload)


def _says_the_same(known: KeptTemplate, other: KeptTemplate) -> bool:
    return (known.digest, known.tenants, known.samples) == (other.digest, other.tenants, other.samples)
