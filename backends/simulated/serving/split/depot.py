"""Prompts that a prefill engine keeps for a decode engine to fetch: once, unchanged, and in time."""

from collections import OrderedDict
from dataclasses import dataclass

from backends.simulated.serving.errors import Refused
from backends.simulated.serving.runner import Runner
from backends.simulated.serving.types import Json

_REMEMBERED = 100_000


@dataclass(frozen=True, slots=True)
class Parked:
    """A prompt that waits. `terms`: what must be asked for to get it. `number`: the job that holds it."""

    key: str
    terms: Json
    tokens: int
    cached_tokens: int
    number: int
    rank: int
    expires_s: float


class Depot:
    """What waits to be fetched at one engine. What was fetched, or has expired, is remembered as such for a while."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._parked: OrderedDict[str, Parked] = OrderedDict()  # the first expires first
        self._gone: OrderedDict[str, str] = OrderedDict()
        self.expired = 0
        self.refused = 0
        runner.chores.append(self.tidy)

    def park(self, parked: Parked) -> None:
        """Keep it until it is taken or expires."""
        self._parked[parked.key] = parked

    def take(self, key: str, terms: Json) -> Parked:
        """Hand it over: its blocks are free from now on. Raises `Refused`, which leaves it where it is."""
        self.tidy(self._runner.clock.now_s())
        parked = self._parked.get(key)
        if parked is None:
            self.refused += 1
            raise Refused(500, f"request {key!r} is not kept here: it {self._gone.get(key, 'was never issued')}")
        changed = sorted(name for name, value in parked.terms.items() if terms.get(name) != value)
        if changed:
            self.refused += 1
            raise Refused(500, f"request {key!r} was computed with another {', '.join(changed)}")
        self._leave(parked, "was fetched before")
        return parked

    def tidy(self, now_s: float) -> None:
        """Let go of what has expired."""
        while self._parked:
            first = next(iter(self._parked.values()))
            if first.expires_s > now_s:
                return
            self.expired += 1
            self._leave(first, "has expired")

    def __len__(self) -> int:
        return len(self._parked)

    def _leave(self, parked: Parked, why: str) -> None:
        del self._parked[parked.key]
        self._gone[parked.key] = why
        if len(self._gone) > _REMEMBERED:
            self._gone.popitem(last=False)
        self._runner.let_go(parked.rank, parked.number)
