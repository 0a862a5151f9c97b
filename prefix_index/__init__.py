"""What is cached where: prompts become chains of block hashes, and the index says who holds how much of one.

prompt_root, chain_of, extend    token ids -> Chain                                             (blocks)
coarser                          a Chain in larger blocks                                       (blocks)
common_blocks                    how far two chains are one                                     (blocks)
ChainMemo                        chain_of with a memory                                         (chain_memo)
SegmentCache                     texts to token ids, bounded                                    (segment_cache)
SharedIndex                      the index of the gateway: Redis in front, its stand-in behind  (shared_index)
SlotBook                         what an engine of slots holds                                  (slots)
RadixIndex                       the index in process: stand-in, simulator                      (radix)
connect, read_address            a client for SharedIndex, whatever shape its servers have      (redis_clients)
EmbeddedServer                   a private Valkey where there is no Redis                       (embedded)
"""

from prefix_index.blocks import chain_of, coarser, common_blocks, extend, prompt_root
from prefix_index.chain_memo import ChainMemo
from prefix_index.embedded import EmbeddedServer, kept_running
from prefix_index.errors import (
    EmbeddedServerFailed,
    IndexUnavailable,
    NothingHeld,
    PrefixIndexError,
    RedisAddressInvalid,
    TemplateFailed,
    TokenizerUnavailable,
    UnsupportedContent,
)
from prefix_index.index_options import SharedIndexOptions
from prefix_index.radix import RadixIndex
from prefix_index.redis_address import RedisAccess, RedisAddress, read_address
from prefix_index.redis_carrier import Carrier
from prefix_index.redis_census import Census, HotPrefix, Hottest, SeatCensus
from prefix_index.redis_clients import RedisClient, connect
from prefix_index.redis_wire import pool_tag
from prefix_index.segment_cache import SegmentCache
from prefix_index.shared_index import SharedIndex
from prefix_index.slots import SlotBook
from prefix_index.token_bytes import pack, unpack
from prefix_index.types import (
    HASH_BYTES,
    TOKEN_BYTES,
    Chain,
    Claim,
    DegradedReason,
    Load,
    Match,
    TokenIds,
)

__all__ = [
    "HASH_BYTES",
    "TOKEN_BYTES",
    "Carrier",
    "Census",
    "Chain",
    "ChainMemo",
    "Claim",
    "DegradedReason",
    "EmbeddedServer",
    "EmbeddedServerFailed",
    "HotPrefix",
    "Hottest",
    "IndexUnavailable",
    "Load",
    "Match",
    "NothingHeld",
    "PrefixIndexError",
    "RadixIndex",
    "RedisAccess",
    "RedisAddress",
    "RedisAddressInvalid",
    "RedisClient",
    "SeatCensus",
    "SegmentCache",
    "SharedIndex",
    "SharedIndexOptions",
    "SlotBook",
    "TemplateFailed",
    "TokenIds",
    "TokenizerUnavailable",
    "UnsupportedContent",
    "chain_of",
    "coarser",
    "common_blocks",
    "connect",
    "extend",
    "kept_running",
    "pack",
    "pool_tag",
    "prompt_root",
    "read_address",
    "unpack",
]
