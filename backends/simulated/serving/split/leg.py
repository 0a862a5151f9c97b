"""One engine's part of a request: all of it, its prompt, or its answer."""

from dataclasses import dataclass, field
from typing import Protocol

from backends.simulated.serving.text import digest_of
from backends.simulated.serving.types import Json, Prompt, Tally, Wanted


class Ended(Protocol):
    """An answer that is complete."""

    tally: Tally
    rank: int
    parked: bool


@dataclass(slots=True)
class Leg:
    """What is different about a job. The plain one changes nothing.

    `part`: for records. `hold`: its blocks stay behind. `transferred`: its prompt comes computed. `one_token`: the
    answer is written elsewhere. `namespace`: what else names its blocks. `cached_tokens`: what is told instead of what
    was found; `prompt_tokens` likewise.
    """

    part: str = "whole"
    hold: bool = False
    transferred: bool = False
    one_token: bool = False
    namespace: str = ""
    cached_tokens: int | None = None
    prompt_tokens: int | None = None

    async def begin(self, rank: int) -> None:
        """Before the job is queued."""

    async def end(self, number: int, ended: Ended) -> "More":
        """When its last token is out, before that is told."""
        return More()


@dataclass(frozen=True, slots=True)
class More:
    """What stands in an answer beside the usual: at its top, and in its choice."""

    top: Json = field(default_factory=dict)
    choice: Json = field(default_factory=dict)


WHOLE = Leg()


def content_of(wanted: Wanted, prompt: Prompt) -> Json:
    """What blocks are computed from: equal in both legs, or they are not of one request."""
    return {"prompt": digest_of(prompt.ids), "cache_salt": wanted.salt, "adapter": wanted.adapter}
