"""The hash table against a dict."""

from array import array

from hypothesis import given
from hypothesis import strategies as st

from prefix_index.kv_events.forest import WIDEST_ROW, Rows
from prefix_index.kv_events.slot_table import SlotTable

GOLDEN_INVERSE = pow(0x9E3779B97F4A7C15, -1, 2**64)
"""Multiplied with this, a key has the home that we like."""

keys = (
    st.integers(0, 2**64 - 1)
    | st.integers(0, 5)
    | st.integers(0, 63).map(lambda at: (at << 30) * GOLDEN_INVERSE % 2**64)
)


def table_of(*entries: int) -> SlotTable:
    table = SlotTable()
    table.keys.extend([0] * len(entries))
    for slot, key in enumerate(entries):
        table.put(slot, key)
    return table


@given(st.lists(keys, max_size=60), st.data())
def test_a_table_finds_what_was_put_and_not_dropped(entries: list[int], data: st.DataObject) -> None:
    table = table_of(*entries)
    slots = list(range(len(entries)))
    dropped = data.draw(st.sets(st.sampled_from(slots))) if slots else set()
    for slot in dropped:
        table.drop(slot)
    left = [slot for slot in slots if slot not in dropped]
    assert table.used == len(left)
    for key in {*entries, 17}:
        expected = {slot for slot in left if entries[slot] == key}
        assert set(table.find_all(key)) == expected
        assert (table.find(key) in expected) if expected else (table.find(key) == -1)


def test_ten_thousand_keys_in_order_need_little_room() -> None:
    table = table_of(*range(10_000))
    assert [table.find(key) for key in range(10_000)] == list(range(10_000))
    assert table.size_bytes < 10_000 * (8 + 4 * 4)
    for slot in range(10_000):
        table.drop(slot)
    assert table.used == 0
    assert table.find(5) == -1


def test_rows_keep_what_they_have_when_they_widen() -> None:
    rows = Rows("I")
    rows.reach(2)
    rows.put(1, array("I", [7]))
    rows.put(0, array("I", [1, 2, 3]))
    rows.reach(5)
    rows.put(4, array("I", [9, 9]))
    assert rows.get(1, 1) == array("I", [7])
    assert rows.get(0, 3) == array("I", [1, 2, 3])
    assert rows.get(4, 2) == array("I", [9, 9])
    assert rows.size_bytes == 5 * 3 * 4


def test_the_widest_rows_stand_apart() -> None:
    rows = Rows("I")
    rows.reach(3)
    wide = array("I", range(WIDEST_ROW + 1))
    rows.put(1, wide)
    rows.put(2, array("I", [5]))
    assert (rows.get(1, 2), rows.get(1, WIDEST_ROW + 1), rows.width) == (wide[:2], wide, 1)
    assert rows.size_bytes == (3 + WIDEST_ROW + 1) * 4
    rows.put(1, array("I", [8]))
    assert rows.get(1, 1) == array("I", [8])
    rows.put(1, wide)
    rows.drop(1)
    rows.drop(1)
    assert rows.size_bytes == 3 * 4
