"""The nouns of serving a request at two endpoints: one computes its prompt, another its answer.

    client's body ──Edit──> prefill leg ──> Handed ──Edit──> decode leg ──> the client's answer
                    Meeting: what both legs must be told alike

An `Edit` says which members of a JSON object are taken out and which are put in; the rest of the bytes is nobody's
business here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Role(StrEnum):
    """What an endpoint, and the engine there, does of a request."""

    BOTH = "both"
    PREFILL = "prefill"
    """It computes prompts and their first token for others, and never answers a client."""
    DECODE = "decode"
    """It writes answers, best where another has computed the prompt: its blocks are transferred then."""


@dataclass(frozen=True, slots=True)
class Edit:
    """Members of a body to `cut`, then to `put` as its last ones: name to JSON bytes."""

    cut: frozenset[str] = frozenset()
    put: Mapping[str, bytes] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Meeting:
    """How two legs find each other. `number` is theirs alone, 0 <= number < 2^63; `host` and `port` are where the
    prefill engine is met by decode engines (None: its own default). `prefill_rank` is the data-parallel rank that
    computes the prompt, where the gateway chose one."""

    number: int
    host: str
    port: int | None = None
    prefill_rank: int | None = None


@dataclass(frozen=True, slots=True)
class Handed:
    """What a prefill leg answered, as far as the decode leg needs it; raw JSON bytes.

    `params` is None where the engine handed nothing over. `ended`: the answer is over with its first token, so there
    is nothing to go on with. `cached_tokens` is what the params say was cached of the prompt, where they say so.
    """

    params: bytes | None = None
    prompt_ids: bytes | None = None
    usage: bytes | None = None
    ended: bool = False
    cached_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class DecodeReport:
    """What the report of a decode leg is held against. `prefill_cached_tokens` is the prefill leg's word."""

    version: str | None
    handed: Handed
    prefill_cached_tokens: int | None
    prompt_tokens: int
    block_tokens: int


def as_prefill(seen: DecodeReport) -> tuple[int, int] | None:
    """For engines whose decode leg reports what the prefill leg did: that number travels with what is handed over."""
    told = seen.prefill_cached_tokens
    return None if told is None else (told, told)


@dataclass(frozen=True, slots=True)
class Handover:
    """One engine family's way, as data and pure functions of it. `is_chat` tells chat completions from completions.

    `is_concurrent`: both legs are sent at once and meet; else the second is made from the first one's answer.
    `keeps_prompt`: the decode engine's prefix cache has the prompt afterwards. `decodes_alone`: a decode engine takes
    requests that nobody prefilled. `decode_frees`: what is kept for a decode leg is freed by one, and by nothing else
    before its lease ends. `reports` gives the least and the most cached tokens that the decode leg should report; None
    where nobody can say.
    """

    name: str
    is_concurrent: bool
    keeps_prompt: bool
    decodes_alone: bool
    decode_frees: bool
    prefill: Callable[[Meeting, bool], Edit]
    read: Callable[[bytes], Handed]
    decode: Callable[[Meeting, Handed, bool], Edit]
    reports: Callable[[DecodeReport], tuple[int, int] | None]
