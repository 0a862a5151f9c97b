"""The body of a request on its way in: pieces as they came, copied once, when they are joined by who wants the whole.

    [ bytes | bytes | bytearray <-- small pieces are gathered here ]

A piece is kept as it is, without a copy. One of a few bytes costs more as an object than it holds, and a client may
send millions of them: these are gathered in a `bytearray`, so that what is held is at most a tenth more than what came.
"""

from collections import deque
from typing import Final

SMALL_PIECE_BYTES: Final = 512


class BodyPieces:
    """Pieces of a body that came and were not taken yet. `put` and `take` are O(piece)."""

    __slots__ = ("_pieces", "waiting_bytes")

    def __init__(self) -> None:
        self._pieces: deque[bytes | bytearray] = deque()
        self.waiting_bytes = 0

    def put(self, piece: bytes) -> None:
        """Keep a piece."""
        pieces = self._pieces
        self.waiting_bytes += len(piece)
        if len(piece) >= SMALL_PIECE_BYTES or not pieces:
            pieces.append(piece)
            return
        last = pieces[-1]
        if isinstance(last, bytearray):
            last += piece
        else:
            pieces.append(bytearray(piece))

    def take(self) -> bytes:
        """The first piece that was not taken; empty where there is none."""
        if not self._pieces:
            return b""
        piece = self._pieces.popleft()
        self.waiting_bytes -= len(piece)
        return piece if isinstance(piece, bytes) else bytes(piece)

    def clear(self) -> None:
        """Forget all of it."""
        self._pieces.clear()
        self.waiting_bytes = 0
