"""Reading a reply to `match`: with the right table of holders, and never believing nonsense."""

import struct

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefix_index.redis_wire import MOST_LOAD_TOKENS, Registry, pack_loads, pool_keys, read_match
from prefix_index.types import Claim, Load

REFUSALS = (ValueError, TypeError, LookupError, struct.error, msgspec.MsgspecError)

KNOWN = Registry(
    b"5",
    b"1",
    {slot: (Claim.CONFIRMED, holder) for slot, holder in {0: "a", 1: "b", 9: "j"}.items()}
    | {16: (Claim.SPECULATIVE, "a"), 17: (Claim.HOST, "a"), 18: (Claim.DISK, "a")},
    {"a": 7, "b": 8, "j": 2},
)


def bits(*slots: int, skipped: int = 0) -> bytes:
    """As Redis stores them: zero bytes skipped, length - 1, and the rest."""
    packed = sum(1 << (slot - 8 * skipped) for slot in slots)
    size = (packed.bit_length() + 7) // 8
    return bytes([skipped, size - 1]) + packed.to_bytes(size, "little")


def second(s: int) -> bytes:
    return s.to_bytes(4, "big")


def reply(**changes: object) -> list[object]:
    parts: dict[str, object] = {
        "version": b"5",
        "born": b"1",
        "names": [],
        "now": b"100000000",
        "path": [bits(0, 1, 9), 4, second(60), bits(0), 7, second(90)],
        "walked": 7,
        "cut": 0,
        "news": [b"r", b"99", pack_loads({"a": Load(1, 2, 3)})],
    }
    return list((parts | changes).values())


def test_bitmaps_name_holders_by_slot() -> None:
    read = read_match(reply(), KNOWN)
    assert read.match.blocks == {"a": 7, "b": 4, "j": 4}
    assert read.match.ages_s == {"a": 10.0, "b": 40.0, "j": 40.0}
    assert (read.match.walked_blocks, read.match.truncated, read.now_us) == (7, False, 100_000_000)
    assert read.news == [("r", 99, {"a": Load(1, 2, 3)})]
    assert read.registry is KNOWN


def test_each_claim_is_a_run_of_its_own() -> None:
    path = [bits(16, 17, 18, skipped=2), 2, second(50), bits(17, 18, skipped=2), 5, second(50), bits(18), 6, second(50)]
    found = read_match(reply(path=path), KNOWN).match
    assert (dict(found.blocks), dict(found.ages_s)) == ({}, {})
    assert (found.speculative, found.host, found.disk) == ({"a": 2}, {"a": 5}, {"a": 6})


def test_a_use_that_lies_in_the_future_is_new() -> None:
    assert read_match(reply(path=[bits(0), 2, second(101)]), KNOWN).match.ages_s == {"a": 0.0}


def test_a_slot_without_a_name_is_nobody() -> None:
    assert read_match(reply(path=[bits(0, 2), 2, second(1)]), KNOWN).match.blocks == {"a": 2}


def test_a_new_table_replaces_the_known_one_for_this_reply() -> None:
    read = read_match(reply(version=b"6", names=[b"0", b"3:cc", b"1", b"9:ca:b", b"4", b"9:sa:b"]), KNOWN)
    assert read.match.blocks == {"c": 7, "a:b": 4}
    slots = {0: (Claim.CONFIRMED, "c"), 1: (Claim.CONFIRMED, "a:b"), 4: (Claim.SPECULATIVE, "a:b")}
    assert read.registry == Registry(b"6", b"1", slots, {"c": 3, "a:b": 9})


def test_loads_of_nothing_are_not_sent() -> None:
    assert msgspec.msgpack.decode(pack_loads({"a": Load(), "b": Load(0, 0, 1)})) == {"b": [0, 0, 1]}


def test_a_load_beyond_all_measure_is_told_as_the_largest_there_is() -> None:
    read = read_match(reply(news=[b"r", b"99", pack_loads({"a": Load(1, 1 << 80, 1 << 64)})]), KNOWN)
    assert read.news == [("r", 99, {"a": Load(1, MOST_LOAD_TOKENS, MOST_LOAD_TOKENS)})]


def test_pools_have_their_own_slot() -> None:
    assert pool_keys("p")[0] == b"{pg:2:p}:nodes"
    assert not set(pool_keys("p")) & set(pool_keys("q"))


leaves = st.none() | st.integers() | st.binary(max_size=12) | st.just(b"5")
nonsense = leaves | st.lists(leaves | st.lists(leaves, max_size=4), min_size=6, max_size=9)


@given(nonsense)
def test_nonsense_is_refused_in_the_ways_that_are_expected(answer: object) -> None:
    try:
        read_match(answer, KNOWN)
    except REFUSALS:
        return


@pytest.mark.parametrize(
    "changes",
    [
        {"path": [bits(0)]},
        {"path": [bits(0), 3]},
        {"path": [b"", 3, second(1)]},
        {"path": [bits(0), 3, b"\x01"]},
        {"path": b"\x01"},
        {"walked": b"7"},
        {"now": 100},
        {"names": [b"0"], "version": b"6"},
        {"names": [b"0", b"3:xnobody"], "version": b"6"},
        {"names": [b"0", b"3:"], "version": b"6"},
        {"names": [b"2048", b"3:ca"], "version": b"6"},
        {"names": [b"-1", b"3:ca"], "version": b"6"},
        {"news": [b"r"]},
    ],
)
def test_a_reply_of_another_shape_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(REFUSALS):
        read_match(reply(**changes), KNOWN)


@pytest.mark.parametrize(
    "word", [[b"r", b"99", b"\xff"], [b"\xff", b"99", b""], [b"r", b"at noon", b""], [b"r", 99, b""]]
)
def test_a_word_of_a_replica_that_cannot_be_read_hides_no_other(word: list[object]) -> None:
    read = read_match(reply(news=[b"q", b"98", b"", *word, b"s", b"99", b""]), KNOWN)
    assert read.news == [("q", 98, {}), ("s", 99, {})]
    assert read.unreadable == 1
