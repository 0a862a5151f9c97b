"""The reply to a request, once it is known where it goes: by how the gateway in front shows bodies.

FULL_DUPLEX_STREAMED   head and body come by themselves; then: head, body in pieces, trailers
BUFFERED               the body comes only after a reply to the head; what is to be changed goes with the body's
no body                one reply, to the head
"""

from typing import Protocol

from gateway.epp.errors import ModeUnsupported
from gateway.epp.messages import body_reply, head_reply, streamed_replies, trailers_reply
from gateway.epp.replies import Replies
from gateway.epp.types import BodyMode, Picked


class Asking(Protocol):
    """How a request is replied to."""

    def body_came(self, body: bytes, *, by_trailers: bool) -> None:
        """It is whole; `by_trailers`: trailers said so."""

    def trailers_came(self) -> None:
        """After the body."""

    def picked(self, picked: Picked) -> None:
        """Where it goes."""


class Bodiless:
    """The head is all there is."""

    def __init__(self, replies: Replies) -> None:
        self._replies = replies

    def body_came(self, body: bytes, *, by_trailers: bool) -> None:
        """None comes."""

    def trailers_came(self) -> None:
        """They are as they were."""
        self._replies.put(trailers_reply(of_answer=False))

    def picked(self, picked: Picked) -> None:
        """The head goes on."""
        self._replies.put(head_reply(of_answer=False, changes=picked.changes, addresses=picked.addresses))


class FullDuplex:
    """The body goes its own way."""

    def __init__(self, replies: Replies) -> None:
        self._replies = replies
        self._has_trailers = self._is_picked = False

    def body_came(self, body: bytes, *, by_trailers: bool) -> None:
        """Nothing is said yet."""
        self._has_trailers = by_trailers

    def trailers_came(self) -> None:
        """They were the end of the body."""

    def picked(self, picked: Picked) -> None:
        """Everything goes on."""
        replies, body = self._replies, picked.body
        replies.put(head_reply(of_answer=False, changes=picked.changes, addresses=picked.addresses))
        pieces = streamed_replies(body, of_answer=False, ends=not self._has_trailers)
        replies.put_all(pieces, len(body))
        if self._has_trailers:
            replies.put(trailers_reply(of_answer=False))


class Buffered:
    """The body comes as a whole, once the head has a reply."""

    def __init__(self, replies: Replies) -> None:
        self._replies = replies
        self._came = b""
        replies.put(head_reply(of_answer=False))

    def body_came(self, body: bytes, *, by_trailers: bool) -> None:
        """To be told from the one that goes on."""
        self._came = body

    def trailers_came(self) -> None:
        """They are shown once the body has its reply."""
        self._replies.put(trailers_reply(of_answer=False))

    def picked(self, picked: Picked) -> None:
        """The body goes on, and with it the head."""
        body = None if picked.body == self._came else picked.body
        reply = body_reply(of_answer=False, body=body, changes=picked.changes, addresses=picked.addresses)
        self._replies.put(reply, 0 if body is None else len(body))


def asking_of(mode: BodyMode, replies: Replies, *, has_body: bool) -> Asking:
    """By the mode of the request's body. Raises `ModeUnsupported` where the body is not to be seen before it goes."""
    if not has_body:
        return Bodiless(replies)
    match mode:
        case BodyMode.FULL_DUPLEX_STREAMED:
            return FullDuplex(replies)
        case BodyMode.BUFFERED | BodyMode.BUFFERED_PARTIAL:
            return Buffered(replies)
        case _:
            raise ModeUnsupported("request_body_mode", mode.name, "set it to FULL_DUPLEX_STREAMED or BUFFERED")
