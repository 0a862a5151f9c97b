"""Reading a reply to `match`: with the right table of holders, and never believing nonsense."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefix_index.redis_wire import Registry, pack_loads, pool_keys, read_match
from prefix_index.types import Load

KNOWN = Registry(b"5", b"1", {0: "a", 1: "b", 9: "j"}, {"a": 0, "b": 0, "j": 2})


def reply(**changes: object) -> list[object]:
    parts: dict[str, object] = {
        "version": b"5",
        "born": b"1",
        "names": [],
        "now": b"100",
        "path": [b"\x03\x02", 4, b"\x01", 7],
        "walked": 7,
        "cut": 0,
        "news": [b"r", b"99", pack_loads({"a": Load(1, 2, 3)})],
    }
    return list((parts | changes).values())


def test_bitmaps_name_holders_by_slot() -> None:
    read = read_match(reply(), KNOWN)
    assert read.match.blocks == {"a": 7, "b": 4, "j": 4}
    assert (read.match.walked_blocks, read.match.truncated, read.now_us) == (7, False, 100)
    assert read.news == [("r", 99, {"a": Load(1, 2, 3)})]
    assert read.registry is KNOWN


def test_a_slot_without_a_name_is_nobody() -> None:
    assert read_match(reply(path=[b"\x05", 2]), KNOWN).match.blocks == {"a": 2}


def test_a_new_table_replaces_the_known_one_for_this_reply() -> None:
    read = read_match(reply(version=b"6", names=[b"0", b"3:c", b"1", b"0:a:b"]), KNOWN)
    assert read.match.blocks == {"c": 7, "a:b": 4}
    assert read.registry == Registry(b"6", b"1", {0: "c", 1: "a:b"}, {"c": 3, "a:b": 0})


def test_loads_of_nothing_are_not_sent() -> None:
    assert msgspec.msgpack.decode(pack_loads({"a": Load(), "b": Load(0, 0, 1)})) == {"b": [0, 0, 1]}


def test_pools_have_their_own_slot() -> None:
    assert pool_keys("p")[0] == b"{pg:1:p}:nodes"
    assert not set(pool_keys("p")) & set(pool_keys("q"))


leaves = st.none() | st.integers() | st.binary(max_size=12) | st.just(b"5")
nonsense = leaves | st.lists(leaves | st.lists(leaves, max_size=4), min_size=6, max_size=9)


@given(nonsense)
def test_nonsense_is_refused_in_the_ways_that_are_expected(answer: object) -> None:
    try:
        read_match(answer, KNOWN)
    except (ValueError, TypeError, LookupError, msgspec.MsgspecError):
        return


@pytest.mark.parametrize(
    "changes",
    [
        {"path": [b"\x01"]},
        {"path": b"\x01"},
        {"walked": b"7"},
        {"now": 100},
        {"names": [b"0"], "version": b"6"},
        {"news": [b"r", b"99", b"\xff"]},
        {"news": [b"r"]},
    ],
)
def test_a_reply_of_another_shape_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises((ValueError, TypeError, LookupError, msgspec.MsgspecError)):
        read_match(reply(**changes), KNOWN)
