"""Request ids: of their form, in the order of their time, and none twice."""

import re

from gateway.ids import new_request_id

_MS = 1_796_000_000_123


def test_an_id_has_26_digits_of_crockfords_alphabet_and_begins_with_its_time() -> None:
    found = new_request_id(_MS)
    assert re.fullmatch("[0-9A-HJKMNP-TV-Z]{26}", found)
    digits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
    value = 0
    for digit in found[:10]:
        value = value * 32 + digits.index(digit)
    assert value == _MS


def test_no_id_comes_twice_however_many_are_made_in_one_millisecond() -> None:
    assert len({new_request_id(_MS) for _ in range(2_000)}) == 2_000


def test_ids_sort_by_time() -> None:
    made = [new_request_id(_MS + at) for at in range(0, 5_000, 7)]
    assert sorted(made) == made
