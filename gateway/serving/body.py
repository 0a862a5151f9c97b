"""The body of a request on its way in: pieces as they came, copied once, when they are joined by who wants the whole.

    [ bytes | bytes | bytearray <-- small pieces are gathered here ]

A piece is kept as it is, without a copy. One of a few bytes costs more as an object than it holds, and a client may
send millions of them: these are gathered, so that what is held is at most a tenth more than what came.
"""

from typing import Final

SMALL_PIECE_BYTES: Final = 512

Piece = bytes | bytearray | memoryview


def add_piece(pieces: list[Piece], piece: bytes | memoryview) -> None:
    """Keep a piece behind the others. O(1), of a small one O(its bytes)."""
    if not pieces or len(piece) >= SMALL_PIECE_BYTES:
        pieces.append(piece)
        return
    last = pieces[-1]
    if isinstance(last, bytearray):
        last += piece
    else:
        pieces.append(bytearray(piece))


def whole(pieces: list[Piece]) -> bytes:
    """All of them as one. A single piece of bytes is not copied."""
    if len(pieces) == 1:
        return bytes(pieces[0])
    return b"".join(pieces)
