"""The reply to an answer, by how the gateway in front shows its body.

    mode                   what the client gets            the end waits for the ledger
    FULL_DUPLEX_STREAMED   head and body as we write them  yes
    STREAMED               a reply to each part shown      yes, it is in the reply to the last part
    BUFFERED               one reply, to all of it         yes
    NONE                   what the engine said; unseen    nothing to wait for: it is not billed
    (no body, or an error  one reply                       yes
    of our own)

`handed`: the reader has got a part that was shown. `wanted`: it asks for the next, so all is written that this one led
to. `start` and `write` are what the pipeline answers.
"""

from typing import Protocol

from gateway.epp.errors import ModeUnsupported, ProtocolBroken
from gateway.epp.fields import answer_changes, immediate_fields, value_of
from gateway.epp.messages import body_reply, head_reply, immediate_reply, streamed_replies, trailers_reply
from gateway.epp.replies import Replies
from gateway.epp.types import BodyMode, Changes, HeadShown
from gateway.types import Headers


class Answering(Protocol):
    """How an answer is replied to."""

    ended: bool
    """Whether the pipeline has said all of it."""

    def handed(self, *, ends: bool) -> None:
        """A part was shown, and the reader has it; `ends`: it said that it is the last."""

    def wanted(self) -> None:
        """The reader asks for the next."""

    def trailers_came(self) -> None:
        """The body was whole before."""

    def start(self, status: int, fields: Headers) -> None:
        """The head."""

    def write(self, body: bytes, *, more: bool) -> None:
        """A part of the body; the last one has no `more`."""


class Immediate:
    """An answer in place of any other, kept until it is whole."""

    def __init__(self, replies: Replies) -> None:
        self._replies = replies
        self._head: tuple[int, Headers] = (500, ())
        self._pieces: list[bytes] = []
        self.ended = False

    def handed(self, *, ends: bool) -> None:
        """Nobody asked."""

    def wanted(self) -> None:
        """Nothing to say."""

    def trailers_came(self) -> None:
        """They are dropped with the rest."""

    def start(self, status: int, fields: Headers) -> None:
        """The head."""
        self._head = status, fields

    def write(self, body: bytes, *, more: bool) -> None:
        """A part of the body."""
        self._pieces.append(body)
        if more:
            return
        self.ended = True
        status, fields = self._head
        self._replies.put(immediate_reply(status, immediate_fields(fields), b"".join(self._pieces)))
        self._replies.close()


class FullDuplex:
    """Head and body go their own way."""

    def __init__(self, replies: Replies, came: HeadShown) -> None:
        self._replies = replies
        self._came = came
        self._has_trailers = self.ended = False

    def handed(self, *, ends: bool) -> None:
        """No reply belongs to a part."""

    def wanted(self) -> None:
        """The same."""

    def trailers_came(self) -> None:
        """They were the end of the body, and are told after ours."""
        self._has_trailers = True

    def start(self, status: int, fields: Headers) -> None:
        """The head goes on."""
        self._replies.put(head_reply(of_answer=True, changes=answer_changes(self._came.fields, status, fields)))

    def write(self, body: bytes, *, more: bool) -> None:
        """A part goes on."""
        ends = not more and not self._has_trailers
        self._replies.put_all(streamed_replies(body, of_answer=True, ends=ends), len(body))
        if more:
            return
        self.ended = True
        if self._has_trailers:
            self._replies.put(trailers_reply(of_answer=True))
        self._replies.close()


class Streamed:
    """Each part that is shown has one reply, with what of the answer goes in its place."""

    def __init__(self, replies: Replies, ours: Headers) -> None:
        self._replies = replies
        self._owed = 0
        self._pending: list[bytes] = []
        self.ended = self._shown_all = False
        replies.put(head_reply(of_answer=True, changes=Changes(ours, (b"content-length",))))

    def handed(self, *, ends: bool) -> None:
        """It is to be replied to."""
        self._owed += 1
        self._shown_all = self._shown_all or ends
        if self.ended:
            self.wanted()

    def wanted(self) -> None:
        """What was handed is dealt with."""
        while self._owed:
            self._reply()

    def trailers_came(self) -> None:
        """Nothing can follow them: what is still held back would be lost."""
        self._shown_all = True
        self.wanted()
        if self._pending or not self.ended:
            self._replies.fail(ProtocolBroken("trailers behind an answer whose end was held back"))
            return
        self._replies.put(trailers_reply(of_answer=True))
        self._replies.close()

    def start(self, status: int, fields: Headers) -> None:
        """The head has gone, as the engine's."""

    def write(self, body: bytes, *, more: bool) -> None:
        """A part, for the next reply."""
        if body:
            self._pending.append(body)
        if not more:
            self.ended = True
            self.wanted()

    def _reply(self) -> None:
        self._owed -= 1
        body = b"" if self._owed else b"".join(self._pending)
        if not self._owed:
            self._pending.clear()
        self._replies.put(body_reply(of_answer=True, body=body), len(body))
        if self.ended and self._shown_all and not self._owed:
            self._replies.close()


class Buffered:
    """All of the body is shown at once, and has one reply, which can change the head too."""

    def __init__(self, replies: Replies, came: HeadShown) -> None:
        self._replies = replies
        self._came = came
        self._changes = Changes()
        self._pieces: list[bytes] = []
        self.ended = self._has_trailers = False
        replies.put(head_reply(of_answer=True))

    def handed(self, *, ends: bool) -> None:
        """Its reply comes when the pipeline has said all; without an end, trailers follow that."""
        self._has_trailers = not ends

    def wanted(self) -> None:
        """The same."""

    def trailers_came(self) -> None:
        """They are shown once the body has its reply."""
        self._replies.put(trailers_reply(of_answer=True))
        self._replies.close()

    def start(self, status: int, fields: Headers) -> None:
        """The head."""
        fields = tuple(field for field in fields if field[0] != b"content-length")
        self._changes = answer_changes(self._came.fields, status, fields)

    def write(self, body: bytes, *, more: bool) -> None:
        """A part of it."""
        self._pieces.append(body)
        if more:
            return
        self.ended = True
        whole = b"".join(self._pieces)
        to_set = (*self._changes.set, (b"content-length", b"%d" % len(whole)))
        changes = Changes(to_set, tuple(name for name in self._changes.remove if name != b"content-length"))
        self._replies.put(body_reply(of_answer=True, body=whole, changes=changes), len(whole))
        if not self._has_trailers:
            self._replies.close()


class Bodiless:
    """The head is all there is; a body of ours can only be an answer of its own."""

    def __init__(self, replies: Replies, came: HeadShown) -> None:
        self._replies = replies
        self._came = came
        self._instead = Immediate(replies)
        self._changes = Changes()
        self._has_body = self.ended = False

    def handed(self, *, ends: bool) -> None:
        """Nothing is shown."""

    def wanted(self) -> None:
        """The same."""

    def trailers_came(self) -> None:
        """As they are."""
        self._replies.put(trailers_reply(of_answer=True))

    def start(self, status: int, fields: Headers) -> None:
        """The head."""
        self._instead.start(status, fields)
        self._changes = answer_changes(self._came.fields, status, fields)

    def write(self, body: bytes, *, more: bool) -> None:
        """The end, and perhaps a body."""
        self._has_body = self._has_body or bool(body)
        if more or self._has_body:
            self._instead.write(body, more=more)
            self.ended = self._instead.ended
            return
        self.ended = True
        self._replies.put(head_reply(of_answer=True, changes=self._changes))
        self._replies.close()


class Unseen:
    """The body is not shown: whatever the pipeline makes of it goes nowhere."""

    def __init__(self, replies: Replies, ours: Headers) -> None:
        self._replies = replies
        self.ended = False
        replies.put(head_reply(of_answer=True, changes=Changes(ours)))

    def handed(self, *, ends: bool) -> None:
        """Nothing is shown."""

    def wanted(self) -> None:
        """The same."""

    def trailers_came(self) -> None:
        """As they are."""
        self._replies.put(trailers_reply(of_answer=True))

    def start(self, status: int, fields: Headers) -> None:
        """The head has gone."""

    def write(self, body: bytes, *, more: bool) -> None:
        """Nobody gets it."""
        if not more:
            self.ended = True
            self._replies.close()


class Passing:
    """An answer that the gateway in front gives by itself, to a request that never went anywhere: it stays as it is."""

    def __init__(self, replies: Replies, mode: BodyMode) -> None:
        self._replies = replies
        self._is_duplex = mode is BodyMode.FULL_DUPLEX_STREAMED
        replies.put(head_reply(of_answer=True))

    def shown(self, data: bytes, *, ends: bool) -> None:
        """A part of its body."""
        if self._is_duplex:
            self._replies.put_all(streamed_replies(data, of_answer=True, ends=ends), len(data))
        else:
            self._replies.put(body_reply(of_answer=True))

    def trailers_came(self) -> None:
        """Its end."""
        self._replies.put(trailers_reply(of_answer=True))


def answering_of(mode: BodyMode, replies: Replies, came: HeadShown, ours: Headers) -> Answering:
    """By the mode of the answer's body; `ours` are fields for a head that must leave before the body is seen.

    Raises `ModeUnsupported` where a part of the body is shown and another is not.
    """
    if mode is BodyMode.NONE:
        return Unseen(replies, ours)
    if came.ends:
        return Bodiless(replies, came)
    match mode:
        case BodyMode.FULL_DUPLEX_STREAMED:
            return FullDuplex(replies, came)
        case BodyMode.STREAMED:
            return Streamed(replies, ours)
        case BodyMode.BUFFERED:
            return Buffered(replies, came)
        case _:
            raise ModeUnsupported(
                "response_body_mode", mode.name, "set it to FULL_DUPLEX_STREAMED, STREAMED, BUFFERED or NONE"
            )


def status_of(head: HeadShown) -> int:
    """The status of an answer. Raises `ProtocolBroken` where its head has none."""
    value = value_of(head.fields, b":status") or b""
    if not value.isdigit() or not 200 <= int(value) < 600:
        raise ProtocolBroken("an answer without a status")
    return int(value)
