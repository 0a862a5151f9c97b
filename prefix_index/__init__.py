"""What is cached where: prompts become chains of block hashes, and the index says who holds how much of one.

prompt_root, chain_of, extend    token ids -> Chain                                             (blocks)
SharedIndex                      the index of the gateway: Redis in front, its stand-in behind  (shared_index)
RadixIndex                       the index in process: stand-in, simulator                      (radix)
connect                          a client for SharedIndex                                      (redis_link)
EmbeddedServer                   a private Valkey where there is no Redis                       (embedded)
"""

from prefix_index.blocks import chain_of, extend, prompt_root
from prefix_index.embedded import EmbeddedServer
from prefix_index.errors import (
    EmbeddedServerFailed,
    IndexUnavailable,
    PrefixIndexError,
    TemplateFailed,
    TokenizerUnavailable,
    UnsupportedContent,
)
from prefix_index.radix import RadixIndex
from prefix_index.redis_link import connect
from prefix_index.shared_index import SharedIndex, SharedIndexOptions
from prefix_index.types import (
    HASH_BYTES,
    TOKEN_BYTES,
    Chain,
    DegradedReason,
    Evidence,
    Load,
    Match,
    TokenIds,
)

__all__ = [
    "HASH_BYTES",
    "TOKEN_BYTES",
    "Chain",
    "DegradedReason",
    "EmbeddedServer",
    "EmbeddedServerFailed",
    "Evidence",
    "IndexUnavailable",
    "Load",
    "Match",
    "PrefixIndexError",
    "RadixIndex",
    "SharedIndex",
    "SharedIndexOptions",
    "TemplateFailed",
    "TokenIds",
    "TokenizerUnavailable",
    "UnsupportedContent",
    "chain_of",
    "connect",
    "extend",
    "prompt_root",
]
