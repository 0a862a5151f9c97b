"""Audit of the index in Redis: reads all keys of a pool and checks every invariant that `lua/nodes.lua` states.

Reads the whole pool at once, in one transaction: for tests and operators, never for the request path.
"""

import re
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from redis.asyncio import Redis

from prefix_index.redis_wire import LRU_SPAN, StoredNode, letters, pool_keys, read_node, read_seat
from prefix_index.types import HASH_BYTES


@dataclass(frozen=True, slots=True)
class _Pool:
    nodes: Mapping[bytes, StoredNode]
    by_end: Mapping[bytes, StoredNode]
    order: Mapping[int, list[tuple[float, int, bytes]]]
    """Per slot, oldest first: tick, start, name."""
    kids: frozenset[bytes]
    registry: Mapping[bytes, bytes]
    who: Mapping[bytes, bytes]
    immortal: tuple[bytes, ...]


async def check_pool(client: Redis, pool: str) -> list[str]:
    """Every broken invariant of a pool, in words; empty when sound. O(everything stored), and blocks the server."""
    found = await _read(client, pool)
    return [
        *_broken_keys(found),
        *_broken_nodes(found),
        *_broken_orders(found),
        *_broken_starts(found),
        *_broken_slots(found),
        *_broken_seats(found),
    ]


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
        order.setdefault(slot, []).append((score - slot * LRU_SPAN, 2**32 - 1 - depth, member[6:]))
    stored = {name: read_node(name, value) for name, value in replies[0].items()}
    return _Pool(
        nodes=stored,
        by_end={node.edge[-HASH_BYTES:]: node for node in stored.values()},
        order=order,
        kids=frozenset(replies[2]),
        registry=replies[3],
        who=replies[4],
        immortal=tuple(key for key, ttl_ms in zip(keys, replies[5:], strict=True) if ttl_ms == -1),
    )


def _broken_keys(pool: _Pool) -> Iterable[str]:
    for key in pool.immortal:
        yield f"key {key!r} has no time to live"


def _broken_nodes(pool: _Pool) -> Iterable[str]:
    listed = set()
    for name, node in pool.nodes.items():
        where = f"node {name.hex()}"
        if not node.slots:
            yield f"{where} has no holder"
        if node.parent_end is None:
            continue
        listed.add(node.parent_end + name)
        parent = pool.by_end.get(node.parent_end)
        if parent is None:
            yield f"{where} is an orphan"
        elif not node.slots <= parent.slots:
            yield f"{where} is held by someone who does not hold its parent"
    roots = sum(node.parent_end is None for node in pool.nodes.values())
    if int(pool.registry.get(b"roots", 0)) != roots:
        yield f"{int(pool.registry.get(b'roots', 0))} roots are counted, and {roots} are stored"
    if listed != pool.kids:
        yield f"{len(listed ^ pool.kids)} entries of kids are missing or too many"
    counted, blocks = int(pool.registry.get(b"blocks", 0)), sum(map(len, pool.nodes.values()))
    if counted != blocks:
        yield f"{counted} blocks are counted, and {blocks} are stored"


def _broken_orders(pool: _Pool) -> Iterable[str]:
    for slot, entries in pool.order.items():
        passed: set[bytes] = set()
        for tick, _, name in entries:
            if not 0 < tick < LRU_SPAN or tick != int(tick):
                yield f"slot {slot} has a tick that is none: {tick}"
            node = pool.nodes.get(name)
            if node is None or slot not in node.slots:
                yield f"slot {slot} keeps in order a node it does not hold"
                continue
            parent = pool.by_end.get(node.parent_end) if node.parent_end else None
            if parent is not None and parent.name in passed:
                yield f"slot {slot} would lose a parent before its child"
            passed.add(name)
        if len(passed) != sum(slot in node.slots for node in pool.nodes.values()):
            yield f"slot {slot} holds a node that is not in its order"


def _broken_starts(pool: _Pool) -> Iterable[str]:
    starts: dict[bytes, int] = {}
    for entries in pool.order.values():
        for _, start, name in entries:
            if starts.setdefault(name, start) != start:
                yield f"node {name.hex()} starts in two places"
    for name, node in pool.nodes.items():
        parent = pool.by_end.get(node.parent_end) if node.parent_end else None
        expected = 0 if parent is None else starts.get(parent.name, 0) + len(parent)
        if starts.get(name) != expected:
            yield f"node {name.hex()} is said to start at {starts.get(name)}, and starts at {expected}"


def _broken_slots(pool: _Pool) -> Iterable[str]:
    registry = pool.registry
    living = {int(slot) for slot in pool.who}
    dead, free = (_slots(registry.get(field, b"")) for field in (b"dead", b"free"))
    everyone = [*living, *dead, *free]
    if len(everyone) != len(set(everyone)) or set(everyone) != set(range(int(registry.get(b"next", 0)))):
        yield "a slot is living, dead and free not exactly once"
    if int(registry.get(b"seats", 0)) != len(living):
        yield f"{int(registry.get(b'seats', 0))} seats are counted, and {len(living)} are taken"
    held = dict.fromkeys(everyone, 0)
    for node in pool.nodes.values():
        for slot in node.slots:
            held[slot] = held.get(slot, 0) + len(node)
    for slot, blocks in held.items():
        counted = int(registry.get(f"n:{slot}".encode(), 0))
        if counted != blocks:
            yield f"slot {slot} counts {counted} blocks and holds {blocks}"
    if any(held.get(slot) for slot in free):
        yield "a free slot still holds nodes"


def _broken_seats(pool: _Pool) -> Iterable[str]:
    """The seats that holders are said to have are those that `who` says are taken, under the same generation."""
    told = set()
    for field, record in pool.registry.items():
        if not field.startswith(b"h:"):
            continue
        generation, _, taken = record.decode().partition(":")
        found = re.findall(r"([a-z])(\d+)", taken)
        if not found:
            yield f"holder {field[2:]!r} is kept without a seat"
        told |= {(int(slot), int(generation), letter, field[2:].decode()) for letter, slot in found}
    seated = set()
    for slot, entry in pool.who.items():
        generation_, claim, holder = read_seat(entry)
        seated.add((int(slot), generation_, letters([claim]), holder))
    if told != seated:
        yield f"{len(told ^ seated)} names of slots are not those of the seats"


def _slots(packed: bytes) -> list[int]:
    return list(struct.unpack(f">{len(packed) // 2}H", packed))
