"""Blocks that leave one cache and enter another.

    P  names   [ h0   h1   h2 ]       D  names by its own tokens and salt   [ h0   h1   h2 ]
       values  [ KV0  KV1  KV2 ]         has                                  3
                                         adopts                                    KV1  KV2

A name stands for a block's tokens, all before them, and the salt, at both engines alike. So D takes nothing that is
another prompt's: where the names are not those that it finds itself, it takes nothing at all, nor what another model
computed of them. Only blocks that a prompt
may reuse are carried: never the one with its last token, which D must compute for the logits.
"""

from dataclasses import dataclass, field
from typing import Final

import safetensors.torch
import torch
from torch import Tensor

from backends.reference.block_pool import HASH_BYTES
from backends.reference.engine import KvCache
from backends.reference.errors import TransferFailed
from backends.reference.sequence import Sequence
from backends.reference.types import BlockHash, BlockId

_NAMES: Final = "names"
_VALUES: Final = "values"


@dataclass(frozen=True, slots=True)
class Carried:
    """Blocks on their way: `values` [layers, 2, blocks, block size, kv heads, head dim], on the CPU. `model` is the
    `identity` of who computed them."""

    model: bytes
    names: tuple[BlockHash, ...]
    values: Tensor = field(repr=False)

    def to_bytes(self) -> bytes:
        """As a file of safetensors: the values, and the model and the names one after the other. O(values)."""
        names = torch.tensor(list(b"".join((self.model, *self.names))), dtype=torch.uint8)
        return safetensors.torch.save({_NAMES: names, _VALUES: self.values})

    @classmethod
    def from_bytes(cls, data: bytes) -> "Carried":
        """What `to_bytes` made. Raises `TransferFailed`."""
        try:
            found = safetensors.torch.load(data)
            names, values = found[_NAMES].numpy().tobytes(), found[_VALUES]
        except (safetensors.SafetensorError, KeyError, TypeError) as error:
            raise TransferFailed(f"what came is no file of blocks: {error}") from None
        if values.dtype != torch.float32 or not _are_numbers(values):
            raise TransferFailed("the blocks have values that are no numbers, or not of 32 bits")
        model, *cut = (names[at : at + HASH_BYTES] for at in range(0, max(len(names), 1), HASH_BYTES))
        return cls(model, tuple(map(BlockHash, cut)), values)


def copied(cache: KvCache, prompt: Sequence) -> Carried:
    """A copy of what is cached of a prompt's reusable blocks. On the engine's thread."""
    names = prompt.reusable_chain()
    blocks = cache.pool.match(names)
    return Carried(cache.model, tuple(names[: len(blocks)]), cache.values[:, :, blocks].cpu())


def adopted(cache: KvCache, prompt: Sequence, carried: Carried) -> int:
    """Enter what was carried of a prompt in the prefix cache, as far as there are free blocks; returns how many blocks
    of the prompt are cached then. On the engine's thread. Raises `TransferFailed` where it is not this prompt's, or
    another model's, or not of this cache's form."""
    names = prompt.reusable_chain()[: len(carried.names)]
    _refuse_others(cache, names, carried)
    pool = cache.pool
    held = pool.match(names)
    # Held for the while, so that making room for the others does not evict them.
    pool.hold(held)
    known = len(held)
    fresh: list[BlockId] = []
    while known + len(fresh) < len(names) and pool.free_blocks:
        fresh.append(pool.allocate())
    end = known + len(fresh)
    if fresh:
        cache.values[:, :, fresh] = carried.values[:, :, known:end].to(cache.values.device)
        for block, name in zip(fresh, names[known:end], strict=True):
            pool.publish(block, name)
        size = prompt.block_size
        parent = names[known - 1] if known else None
        tokens = prompt.tokens[known * size : end * size]
        pool.listener.stored(names[known:end], parent, tokens, prompt.request.cache_salt)
    pool.release([*held, *fresh])
    return end


def _are_numbers(values: Tensor) -> bool:
    # Both are NaN where any is. A twentieth of what it takes to look at each.
    return values.numel() == 0 or bool(torch.isfinite(torch.stack(values.aminmax())).all())


def _refuse_others(cache: KvCache, names: list[BlockHash], carried: Carried) -> None:
    form = (*cache.values.shape[:2], len(carried.names), *cache.values.shape[3:])
    if tuple(names) != carried.names:
        raise TransferFailed("the blocks are another prompt's, or of another salt or block size")
    if carried.values.shape != form or carried.values.dtype != cache.values.dtype:
        raise TransferFailed(f"the blocks are of another model: {tuple(carried.values.shape)}, not {form}")
    if carried.model != cache.model:
        raise TransferFailed("the blocks are of another model, or of other --weights, of the same shape")
