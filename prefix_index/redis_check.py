"""Audit of the index in Redis: reads all keys of a pool and checks every invariant that `lua/nodes.lua` states.

Reads the whole pool at once, in one transaction: for tests and operators, never for the request path.
"""

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from redis.asyncio import Redis

from prefix_index.redis_wire import pool_keys
from prefix_index.types import HASH_BYTES

_SPAN = 1 << 43
_NO_PREV = bytes(HASH_BYTES)


@dataclass(frozen=True, slots=True)
class _Node:
    prev: bytes
    slots: frozenset[int]
    edge: bytes

    def __len__(self) -> int:
        return len(self.edge) // HASH_BYTES


@dataclass(frozen=True, slots=True)
class _Pool:
    nodes: Mapping[bytes, _Node]
    order: Mapping[int, list[tuple[float, int, bytes]]]
    """Per slot, oldest first: tick, start, name."""
    kids: frozenset[bytes]
    registry: Mapping[bytes, bytes]
    who: Mapping[bytes, bytes]
    immortal: tuple[bytes, ...]


async def check_pool(client: Redis, pool: str) -> list[str]:
    """Every broken invariant of a pool, in words; empty when sound. O(everything stored), and blocks the server."""
    found = await _read(client, pool)
    return [*_broken_keys(found), *_broken_nodes(found), *_broken_orders(found), *_broken_slots(found)]


async def _read(client: Redis, pool: str) -> _Pool:
    keys = pool_keys(pool)
    nodes, lru, kids, registry, who = keys[:5]
    pipeline = client.pipeline(transaction=True)
    pipeline.hgetall(nodes)
    pipeline.zrange(lru, 0, -1, withscores=True)
    pipeline.zrange(kids, 0, -1)
    pipeline.hgetall(registry)
    pipeline.hgetall(who)
    for key in keys:
        pipeline.pttl(key)
    replies = await pipeline.execute()
    order: dict[int, list[tuple[float, int, bytes]]] = {}
    for member, score in replies[1]:
        slot, depth = struct.unpack_from(">HI", member)
        order.setdefault(slot, []).append((score - slot * _SPAN, 2**32 - 1 - depth, member[6:]))
    return _Pool(
        nodes={name: _parse(name, value) for name, value in replies[0].items()},
        order=order,
        kids=frozenset(replies[2]),
        registry=replies[3],
        who=replies[4],
        immortal=tuple(key for key, ttl_ms in zip(keys, replies[5:], strict=True) if ttl_ms == -1),
    )


def _parse(name: bytes, value: bytes) -> _Node:
    (size,) = struct.unpack_from(">H", value, HASH_BYTES)
    head = HASH_BYTES + 2 + size
    bits = int.from_bytes(value[HASH_BYTES + 2 : head], "little")
    slots = frozenset(slot for slot in range(size * 8) if bits >> slot & 1)
    return _Node(value[:HASH_BYTES], slots, name + value[head:])


def _broken_keys(pool: _Pool) -> Iterable[str]:
    for key in pool.immortal:
        yield f"key {key!r} has no time to live"


def _broken_nodes(pool: _Pool) -> Iterable[str]:
    by_end = {node.edge[-HASH_BYTES:]: node for node in pool.nodes.values()}
    listed = set()
    for name, node in pool.nodes.items():
        where = f"node {name.hex()}"
        if not node.slots:
            yield f"{where} has no holder"
        if node.prev == _NO_PREV:
            continue
        listed.add(node.prev + name)
        parent = by_end.get(node.prev)
        if parent is None:
            yield f"{where} is an orphan"
        elif not node.slots <= parent.slots:
            yield f"{where} is held by someone who does not hold its parent"
    if listed != pool.kids:
        yield f"{len(listed ^ pool.kids)} entries of kids are missing or too many"


def _broken_orders(pool: _Pool) -> Iterable[str]:
    starts: dict[bytes, int] = {}
    by_end = {node.edge[-HASH_BYTES:]: name for name, node in pool.nodes.items()}
    for slot, entries in pool.order.items():
        passed: set[bytes] = set()
        for tick, start, name in entries:
            if not 0 < tick < _SPAN or tick != int(tick):
                yield f"slot {slot} has a tick that is none: {tick}"
            node = pool.nodes.get(name)
            if node is None or slot not in node.slots:
                yield f"slot {slot} keeps in order a node it does not hold"
                continue
            if starts.setdefault(name, start) != start:
                yield f"node {name.hex()} starts in two places"
            if by_end.get(node.prev) in passed:
                yield f"slot {slot} would lose a parent before its child"
            passed.add(name)
        if len(passed) != sum(slot in node.slots for node in pool.nodes.values()):
            yield f"slot {slot} holds a node that is not in its order"
    for name, node in pool.nodes.items():
        parent_name = by_end.get(node.prev)
        expected = 0 if parent_name is None else starts.get(parent_name, 0) + len(pool.nodes[parent_name])
        if starts.get(name) != expected:
            yield f"node {name.hex()} is said to start at {starts.get(name)}, and starts at {expected}"


def _broken_slots(pool: _Pool) -> Iterable[str]:
    registry = pool.registry
    living = {int(slot) for name, slot in registry.items() if name.startswith(b"h:")}
    dead, free = (_slots(registry.get(field, b"")) for field in (b"dead", b"free"))
    everyone = [*living, *dead, *free]
    if len(everyone) != len(set(everyone)) or set(everyone) != set(range(int(registry.get(b"next", 0)))):
        yield "a slot is living, dead and free not exactly once"
    if {int(slot) for slot in pool.who} != living:
        yield "the names of slots are not those of the living"
    held = {slot: 0 for slot in everyone}
    for node in pool.nodes.values():
        for slot in node.slots:
            held[slot] = held.get(slot, 0) + len(node)
    for slot, blocks in held.items():
        counted = int(registry.get(f"n:{slot}".encode(), 0))
        if counted != blocks:
            yield f"slot {slot} counts {counted} blocks and holds {blocks}"
    if any(held.get(slot) for slot in free):
        yield "a free slot still holds nodes"


def _slots(packed: bytes) -> list[int]:
    return list(struct.unpack(f">{len(packed) // 2}H", packed))
