"""The secrets behind cache salts, which one is in force, and the policies for salts that clients send."""

import math
from dataclasses import dataclass, field
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class SaltSecrets:
    """The secret in force, and the one that takes over from it at `from_s` of the wall clock: on all replicas that know
    it at once, while they are changed one after the other."""

    first: bytes = field(repr=False)
    next: bytes = field(default=b"", repr=False)
    from_s: float = math.inf

    @property
    def changes(self) -> bool:
        """Whether there is a next one."""
        return self.from_s < math.inf

    def at(self, wall_s: float) -> bytes:
        """The one in force."""
        return self.next if wall_s >= self.from_s else self.first


class ClientSalt(StrEnum):
    """What becomes of `cache_salt` in a request."""

    STRIP = "strip"
    """It is taken out, as other fields that steer an engine's cache."""
    COMBINE = "combine"
    """It divides the caches of the share group further."""
    REFUSE = "refuse"
    """The request is answered 400."""
