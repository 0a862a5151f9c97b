"""Who paid the first fill: in a group of tenants that share a cache, one computes a prefix and others find it. Pure.

    chains, by time of opening      [a b c d]   computed: all four      acme filled a b c d
                                    [a b c e]   cached: a b c           umbra used a b c of acme's, filled e
                                    [a b f]     cached: a; computed b   b again: evicted, or sent elsewhere

A chain's hashes name blocks and all before them, and hold the group's salt, so the first request of which a block was
not cached is the one that filled it. Who filled a block that was cached when the ledger first saw it, nobody knows.
Tokens count by whole blocks of the chain. Costs: O(blocks), and memory for a hash of each block.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

HASH_BYTES: Final = 8
BEFORE: Final = ""
"""Filled by nobody that the ledger saw in the period."""


class Prompt(NamedTuple):
    """What a prompt shared. `cached_tokens` is None where the engine did not say; then nothing is learned from it."""

    share_group: str
    tenant_id: str
    model: str
    block_tokens: int
    hashes: bytes
    cached_tokens: int | None


class Use(NamedTuple):
    """Blocks of a share group and model that one tenant filled first and one, perhaps another, found cached."""

    share_group: str
    model: str
    filled_by: str
    used_by: str


class Filler(NamedTuple):
    """A tenant of a share group, and a model."""

    share_group: str
    model: str
    tenant_id: str


@dataclass(frozen=True, slots=True)
class Fills:
    """Tokens by who used what whom had filled; those computed first, and those computed again. `unsaid` counts prompts
    of which the engine did not say what was cached."""

    used: Mapping[Use, int]
    first: Mapping[Filler, int]
    again: Mapping[Filler, int]
    unsaid: int

    @property
    def shared_groups(self) -> frozenset[str]:
        """Groups of more than one tenant: in the others everybody pays for their own."""
        tenants: dict[str, set[str]] = {}
        for group, _, tenant_id in (*self.first, *self.again):
            tenants.setdefault(group, set()).add(tenant_id)
        for group, _, filled_by, used_by in self.used:
            tenants.setdefault(group, set()).update({filled_by, used_by} - {BEFORE})
        return frozenset(group for group, names in tenants.items() if len(names) > 1)


@dataclass(slots=True)
class _Sums:
    used: Counter[Use] = field(default_factory=Counter)
    first: Counter[Filler] = field(default_factory=Counter)
    again: Counter[Filler] = field(default_factory=Counter)


def fills(prompts: Iterable[Prompt]) -> Fills:
    """Walk prompts in the order in which they were opened."""
    sums, unsaid = _Sums(), 0
    filler_of: dict[bytes, str] = {}
    for prompt in prompts:
        if prompt.cached_tokens is None:
            unsaid += 1
        else:
            _walk(prompt, prompt.cached_tokens // prompt.block_tokens, filler_of, sums)
    return Fills(sums.used, sums.first, sums.again, unsaid)


def _walk(prompt: Prompt, cached_blocks: int, filler_of: dict[bytes, str], sums: _Sums) -> None:
    who = Filler(prompt.share_group, prompt.model, prompt.tenant_id)
    for at in range(len(prompt.hashes) // HASH_BYTES):
        block = prompt.hashes[at * HASH_BYTES : (at + 1) * HASH_BYTES]
        filler = filler_of.get(block)
        if at < cached_blocks:
            filler = filler_of.setdefault(block, BEFORE)
            sums.used[Use(prompt.share_group, prompt.model, filler, prompt.tenant_id)] += prompt.block_tokens
        elif filler is None:
            filler_of[block] = prompt.tenant_id
            sums.first[who] += prompt.block_tokens
        else:
            sums.again[who] += prompt.block_tokens
