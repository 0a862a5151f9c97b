"""Which call of a tool a fragment belongs to, in a stream of a chat.

    {index 0, id a, name f}   {index 0, args}     the index tells
    {index 0, id a, name f}   {index 0, id b, name g}      all numbered alike: another name under another id is another
    {id a, name f}   {args}                       no index: the place in the chunk stands for it, or a known id
    {name f, args}   {name f, args}               nor an id: after whole arguments another name begins another call

A call's name and id may come after its arguments, and a name in pieces, until it is told to the client: when the first
of its arguments is there, or anything that follows it, so that calls keep their order. Linear in the fragments; kept
are names and ids, never arguments.
"""

import re
from dataclasses import dataclass, field

from gateway.edge.chat_answer import CallPiece


class JsonScan:
    """Follows JSON text in fragments: is the value whole? Linear, and keeps four marks."""

    _MARK = re.compile(r'[{}\[\]"\\]')

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._escaped = False
        self._begun = False

    @property
    def whole(self) -> bool:
        """An object, a list or a string has begun and ended."""
        return self._begun and not self.open

    @property
    def open(self) -> bool:
        """An object, a list or a string has begun and not ended."""
        return self._in_string or self._depth > 0

    def add(self, piece: str) -> None:
        """Take the next fragment."""
        passed = 1 if self._escaped and piece else 0
        self._escaped = self._escaped and not piece
        for found in self._MARK.finditer(piece):
            at, mark = found.start(), found[0]
            if at < passed:
                continue
            if mark == "\\":
                passed = at + 2
                self._escaped = passed > len(piece)
            elif mark == '"':
                self._in_string = not self._in_string
            elif not self._in_string:
                self._depth += 1 if mark in "{[" else -1
            self._begun = True


@dataclass(slots=True, eq=False)
class StreamedCall:
    """One call, so far as its fragments have told it; `number` counts the calls of a stream in order of appearance.

    `argued` says whether any arguments came, `scan` how far they go; from `told` on the name grows no more.
    """

    number: int
    id: str = ""
    name: str = ""
    argued: bool = False
    told: bool = False
    scan: JsonScan = field(default_factory=JsonScan)

    @property
    def ready(self) -> bool:
        """Whether it can be told."""
        return self.told or bool(self.name and self.argued)


class CallFragments:
    """The calls of one stream."""

    def __init__(self) -> None:
        self._count = 0
        self._at: dict[int, StreamedCall] = {}
        self._by_id: dict[str, StreamedCall] = {}
        self._untold: list[StreamedCall] = []

    def take(self, piece: CallPiece, position: int) -> StreamedCall:
        """The call of a fragment, which now knows what the fragment says; `position` is the place in its chunk."""
        call = self._call_of(piece, position)
        if piece.id and not call.id:
            call.id = piece.id
            self._by_id.setdefault(piece.id, call)
        if not call.told and piece.name != call.name:
            call.name += piece.name
        if piece.arguments:
            call.argued = True
            call.scan.add(piece.arguments)
        return call

    def due(self, last: StreamedCall | None = None) -> list[StreamedCall]:
        """The calls to tell now, in order: those with a name up to `last`, or all. They count as told."""
        until = len(self._untold) if last is None else self._untold.index(last) + 1
        return self._tell([call for call in self._untold[:until] if call.name])

    def rest(self) -> list[StreamedCall]:
        """The calls to tell at the end, in order: whatever has not been told. They count as told."""
        return self._tell(self._untold)

    def _tell(self, calls: list[StreamedCall]) -> list[StreamedCall]:
        for call in calls:
            call.told = True
        self._untold = [call for call in self._untold if not call.told]
        return calls

    def _call_of(self, piece: CallPiece, position: int) -> StreamedCall:
        if piece.index is None and piece.id in self._by_id:
            return self._by_id[piece.id]
        at = position if piece.index is None else piece.index
        call = self._at.get(at)
        if call is None or _begins_another(call, piece):
            call = self._at[at] = StreamedCall(self._count)
            self._count += 1
            self._untold.append(call)
        return call


def _begins_another(call: StreamedCall, piece: CallPiece) -> bool:
    """Whether a fragment, in the place of a call, begins the next one. Some servers write the name, or a new id, into
    every fragment, so neither is enough alone."""
    if not piece.name:
        return False
    if piece.id and call.id:
        return piece.id != call.id
    over = call.argued and not call.scan.open
    return bool(over and call.name and (piece.index is None or piece.name != call.name))


class CallIds:
    """Ids of calls, made unique within an answer: clients tell calls apart by nothing else."""

    def __init__(self) -> None:
        self._used: set[str] = set()

    def take(self, given: str, otherwise: str) -> str:
        """The id that the server gave, or `otherwise` where it gave none or has given it before."""
        call_id = otherwise if not given or given in self._used else given
        self._used.add(call_id)
        return call_id
