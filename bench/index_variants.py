"""What a key for each block takes, by how it is written: memory of unrelated blocks, one holder each.

The benchmark uses the first of these; the others show how much hangs on it. llm-d keeps a second key for a block, from
the engine's hash to its own; kthena's keys name the model, its values are times, its keys expire.
"""

from collections.abc import Callable
from typing import Final

from bench.index_data import HASH_BYTES, holder_name, stranger
from bench.index_server import pinned_server
from bench.index_wire import RawConnection, encode

SAMPLE_BLOCKS = 200_000
_AT_A_TIME = 1_000
_A_DAY_S = b"86400"
_HOLDER = holder_name(17).encode()


def _as_measured(name: bytes) -> bytes:
    return encode(b"HSET", _decimal(name), _HOLDER, b"")


def _with_engine_key(name: bytes) -> bytes:
    return _as_measured(name) + encode(b"SET", b"engine:" + _decimal(name[::-1]), _decimal(name))


def _as_kthena(name: bytes) -> bytes:
    key = b"matrix:kv:block:meta-llama/Llama-3.1-8B-Instruct@" + _decimal(name)
    return encode(b"HSET", key, b"llama-8b-0-17.default", b"1790000000") + encode(b"EXPIRE", key, _A_DAY_S)


def _in_eight_bytes(name: bytes) -> bytes:
    return encode(b"HSET", name, _HOLDER, b"")


VARIANTS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "as measured: decimal hash, address as field": _as_measured,
    "and the key from the engine's hash (llm-d)": _with_engine_key,
    "model in the key, time as value, expiry (kthena)": _as_kthena,
    "the hash itself, 8 bytes, as key (nobody's)": _in_eight_bytes,
}


async def measure_variants(blocks: int = SAMPLE_BLOCKS) -> list[dict[str, object]]:
    """A row for each variant."""
    rows: list[dict[str, object]] = []
    names = stranger(blocks, 0)
    for variant, write in VARIANTS.items():
        writes = [write(names[at : at + HASH_BYTES]) for at in range(0, len(names), HASH_BYTES)]
        async with pinned_server() as server:
            before = await server.memory()
            with RawConnection(server.url) as connection:
                for at in range(0, len(writes), _AT_A_TIME):
                    connection.ask(b"".join(writes[at : at + _AT_A_TIME]))
            used_bytes = (await server.memory()).used_bytes - before.used_bytes
        rows.append({"where": "server", "variant": variant, "used_bytes_per_block": round(used_bytes / blocks, 1)})
    return rows


def _decimal(name: bytes) -> bytes:
    return b"%d" % int.from_bytes(name, "little")
