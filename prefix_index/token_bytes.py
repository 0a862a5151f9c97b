"""Token ids in bytes: uint32 little-endian, on any machine."""

import sys
from array import array

from prefix_index.types import TokenIds


def pack(ids: "array[int]") -> TokenIds:
    """`ids` (an `array("I")`) as bytes, 4 a token. Copies; O(tokens)."""
    assert ids.itemsize == 4
    if sys.byteorder == "big":
        ids = ids[:]
        ids.byteswap()
    return TokenIds(ids.tobytes())


def unpack(tokens: TokenIds) -> "array[int]":
    """The opposite of `pack`."""
    ids = array("I")
    ids.frombytes(tokens)
    if sys.byteorder == "big":
        ids.byteswap()
    return ids
