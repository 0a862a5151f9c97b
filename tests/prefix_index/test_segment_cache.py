"""The cache of segments: its keys, and that it keeps the youngest within its bound."""

import re

from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_128_digest

from prefix_index.segment_cache import ENTRY_OVERHEAD_BYTES, SegmentCache
from prefix_index.types import TokenIds


def colliding(first: bytes, second: bytes) -> bytes:
    """1 KB of text; what it adds to the state of an unseeded xxh3 does not change when `q` and `p` change places."""
    text = bytearray(b"." * 1024)
    text[128:136] = b"aaaP" + first
    text[576:584] = b"7ei2" + second
    return bytes(text)


def test_texts_that_collide_without_a_seed_have_keys_of_their_own() -> None:
    one, other = colliding(b"pppp", b"qppp"), colliding(b"qppp", b"pppp")
    assert xxh3_128_digest(one) == xxh3_128_digest(other)
    cache = SegmentCache(1 << 20)
    assert cache.key_of(one) != cache.key_of(other)


def test_two_caches_have_keys_of_their_own_unless_told_otherwise() -> None:
    assert SegmentCache(1).key_of(b"text") != SegmentCache(1).key_of(b"text")
    assert SegmentCache(1, seed=7).key_of(b"text") == SegmentCache(2, seed=7).key_of(b"text")


def test_variants_of_one_content_have_keys_of_their_own() -> None:
    cache = SegmentCache(1)
    keys = {cache.key_of(b"a"), cache.key_of(b"a", b"+"), cache.key_of(b""), cache.key_of(b"\0")}
    assert len(keys) == 4
    assert all(re.fullmatch(rb".{16,17}", key, re.DOTALL) for key in keys)


def test_what_is_known_in_one_space_is_not_known_in_another() -> None:
    cache = SegmentCache(1 << 20)
    key = cache.key_of(b"text", space=7)
    cache.put(key, TokenIds(b"abcd"))
    assert cache.find([b"text"], 7) == [(key, TokenIds(b"abcd"))]
    assert [known for space in (0, 8) for _, known in cache.find([b"text"], space)] == [None, None]
    assert len({key, cache.key_of(b"text"), cache.key_of(b"text", b"+", 7), cache.key_of(b"text", space=8)}) == 4


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 50)), max_size=200), st.integers(0, 20))
def test_the_youngest_are_kept_within_the_bound(uses: list[tuple[int, int]], entries: int) -> None:
    bound = entries * (ENTRY_OVERHEAD_BYTES + 25)
    cache = SegmentCache(bound)
    oracle: dict[int, TokenIds] = {}
    for number, length in uses:
        key = cache.key_of(str(number).encode())
        found = cache.get(key)
        assert found == oracle.get(number)
        if found is not None:
            oracle[number] = oracle.pop(number)
            continue
        tokens = TokenIds(bytes(length))
        cache.put(key, tokens)
        if length + ENTRY_OVERHEAD_BYTES <= bound:
            oracle[number] = tokens
        while sum(len(kept) + ENTRY_OVERHEAD_BYTES for kept in oracle.values()) > bound:
            del oracle[next(iter(oracle))]
        assert cache.size_bytes == sum(len(kept) + ENTRY_OVERHEAD_BYTES for kept in oracle.values())
    assert len(cache) == len(oracle)


def test_what_is_kept_already_is_not_counted_twice() -> None:
    cache = SegmentCache(1 << 20)
    for _ in range(2):
        cache.put(cache.key_of(b"a"), TokenIds(b"1234"))
    assert len(cache) == 1
    assert cache.size_bytes == 4 + ENTRY_OVERHEAD_BYTES


def test_many_contents_are_found_as_one_by_one() -> None:
    cache = SegmentCache(2 * (4 + ENTRY_OVERHEAD_BYTES))
    for content in (b"a", b"b"):
        cache.put(cache.key_of(content), TokenIds(content * 4))
    found = cache.find([b"c", b"a"])
    assert found == [(cache.key_of(b"c"), None), (cache.key_of(b"a"), b"aaaa")]
    cache.put(cache.key_of(b"c"), TokenIds(b"cccc"))
    assert [ids for _, ids in cache.find([b"a", b"b", b"c"])] == [b"aaaa", None, b"cccc"]
