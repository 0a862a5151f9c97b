"""The nouns of kept templates."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from prefix_index.layout import Layout, Renderer

NAME_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}"
VERSION_PATTERN: Final = r"\d{1,9}(?:\.\d{1,9}){0,3}"
"""Together with `@` they fit into a tag of the ledger."""
_REFERENCE: Final = re.compile(rf"({NAME_PATTERN})(?:@({VERSION_PATTERN}))?")


@dataclass(frozen=True, slots=True)
class Reference:
    """What a call names: a template, and the version, None for the newest."""

    name: str
    version: str | None = None

    def __str__(self) -> str:
        return self.name if self.version is None else f"{self.name}@{self.version}"


def reference_of(text: str) -> Reference | None:
    """`name@version` or `name`; None for what is neither."""
    found = _REFERENCE.fullmatch(text)
    return None if found is None else Reference(found[1], found[2])


def version_key(version: str) -> tuple[int, ...]:
    """By what versions are sorted: number by number, so 1.10 is newer than 1.9."""
    return tuple(map(int, version.split(".")))


@dataclass(frozen=True, slots=True)
class KeptTemplate:
    """One version of a template, ready for calls.

    `layout` has both orders; `renderer` renders the one in force: the new one only where `reordered`. `digest` names
    what is rendered, so that a version can be told from another of the same number. `tenants` None: all. `samples` are
    variables of calls as they may come.
    """

    name: str
    version: str
    layout: Layout
    renderer: Renderer
    digest: str
    chars: int
    reordered: bool = False
    tenants: frozenset[str] | None = None
    defaults: Mapping[str, object] = field(default_factory=dict)
    samples: tuple[Mapping[str, object], ...] = ()

    @property
    def reference(self) -> str:
        """`name@version`."""
        return f"{self.name}@{self.version}"

    def allows(self, tenant: str) -> bool:
        """Whether a tenant may call it."""
        return self.tenants is None or tenant in self.tenants
