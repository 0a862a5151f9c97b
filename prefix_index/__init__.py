"""What is cached where: prompts become chains of block hashes, and the index says who holds how much of one.

prompt_root, chain_of, extend    token ids -> Chain               (blocks)
RadixIndex                       the index in process             (radix)
"""

from prefix_index.blocks import chain_of, extend, prompt_root
from prefix_index.errors import IndexUnavailable, PrefixIndexError, TemplateFailed, TokenizerUnavailable
from prefix_index.radix import RadixIndex
from prefix_index.types import (
    HASH_BYTES,
    TOKEN_BYTES,
    BlockHash,
    Chain,
    Evidence,
    Load,
    Match,
    TokenIds,
    Tokenizer,
)

__all__ = [
    "HASH_BYTES",
    "TOKEN_BYTES",
    "BlockHash",
    "Chain",
    "Evidence",
    "IndexUnavailable",
    "Load",
    "Match",
    "PrefixIndexError",
    "RadixIndex",
    "TemplateFailed",
    "TokenIds",
    "Tokenizer",
    "TokenizerUnavailable",
    "chain_of",
    "extend",
    "prompt_root",
]
