"""The nouns of the dashboard: what goes out as JSON, and what makes it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from gateway.ui.asked import Asked

Page = dict[str, Any]
"""Plain data on its way to JSON, or out of it: between workers, and to the browser."""


@dataclass(frozen=True, slots=True)
class JsonPage:
    """`known`: the names of its parameters."""

    make: Callable[[Asked], Awaitable[Any]]
    known: frozenset[str] = frozenset()
