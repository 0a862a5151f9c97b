"""One request of the gateway in front: to the edge a client with its request, to the pipeline the way to an engine.

messages --take--> head --------> (the server starts the application)      application --start, write--> replies
                   body --------> RequestBody --> application
                   answer's head, body --> Feed --> pipeline
EnvoyPlane --pick--> replies

asked --picked--> sent --head of the answer--> answering --all said--> closed
  |                 `--our own error: Immediate -------------------------^
  |--our own answer: Immediate ------------------------------------------^
  `--an answer of the gateway's own before it was picked: Passing, and the application is told that the client left
"""

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from backends import Deadlines, UpstreamResponse
from backends.headers import response_headers
from gateway.epp.answering import (
    Answering,
    Bodiless,
    FullDuplex,
    Immediate,
    Passing,
    Streamed,
    Unseen,
    answering_of,
    status_of,
)
from gateway.epp.asking import Asking, asking_of
from gateway.epp.errors import ModeUnsupported, ProtocolBroken
from gateway.epp.feed import Feed
from gateway.epp.fields import value_of, without_pseudo
from gateway.epp.replies import Replies
from gateway.epp.request_body import RequestBody
from gateway.epp.types import BodyMode, BodyShown, Context, HeadShown, Modes, Picked, Shown, TrailersShown
from gateway.types import Headers
from gateway.wire import EXTENSION, Scope

SOMETHING: Final = b'{"choices":[{"index":0}]}'
"""Stands for an answer that is not shown: it says that there is one, and nothing of it."""
GRACE_S: Final = 5.0
"""How long the end of a streamed answer waits for a part to go with, after its engine has fallen silent."""
_ASGI: Final = {"version": "3.0", "spec_version": "2.3"}


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """What the configuration fixes for every stream; `modes` are those of a gateway that does not tell them."""

    modes: Modes
    most_body_bytes: int


class Stream:
    """Of one request. Plain calls, but for those that wait."""

    def __init__(self, replies: Replies, options: StreamOptions, unseen: Callable[[], None]) -> None:
        """`unseen` is called where the answer will not be shown."""
        self.replies = replies
        self.gone = self.is_said = False
        self.context = Context()
        self.served: str | None = None
        """The address that answered, as far as it is told."""
        self.details: str | None = None
        """Whose answer it is, as far as it is told."""
        self.ours: Headers = ()
        """Fields for an answer whose head leaves before it is seen."""
        self.fallbacks: tuple[str, ...] = ()
        """Endpoints that may be named behind the chosen one."""
        self.forced: str | None = None
        """The endpoint that serves it already."""
        self._unseen = unseen
        self._modes = options.modes
        self._head: HeadShown | None = None
        self._body = RequestBody(options.most_body_bytes)
        self._on_leave: Callable[[], object] | None = None
        self._asking: Asking | None = None
        self._picked: Picked | None = None
        self._answering: Answering | None = None
        self._passing: Passing | None = None
        self._writes_to: Answering | None = None
        self._feed = Feed(asyncio.get_running_loop(), self._handed, self._wanted)

    # What the gateway in front shows.

    def take(self, shown: Shown) -> None:
        """The next message. Raises `ProtocolBroken` and `ModeUnsupported`."""
        match shown:
            case HeadShown(of_answer=False):
                self._request_head(shown)
            case HeadShown():
                self._answer_head(shown)
            case BodyShown(of_answer=False):
                self._request_body(shown)
            case BodyShown():
                self._answer_body(shown)
            case TrailersShown():
                self._trailers(of_answer=shown.of_answer)

    async def room(self) -> None:
        """Wait until there is room for more: of the body, which may have to wait for its turn, or of the answer."""
        await self._body.room()
        await self._feed.room()

    def ends(self) -> None:
        """Nothing more will be shown."""
        if self._modes.response is BodyMode.NONE and self._picked is not None:
            if self._answering is None:  # not even its head: that there was an answer is all that may be supposed
                self._answering = Unseen(self.replies, ())
                self._feed.head(200, (), ends=False)
                self._feed.chunk(SOMETHING, ends=False)
            self._feed.end()
        else:
            self.leave()

    def leave(self) -> None:
        """The client left, or the gateway in front has no use for us any more."""
        if self.gone or self.replies.closed:
            return
        self.gone = True
        self._body.leave()
        if self._on_leave is not None:
            self._on_leave()

    def application_ended(self) -> None:
        """Nothing more will be said: an answer that is not whole by now is cut."""
        said, self.is_said = self._writes_to, True
        if self._passing is None and not self.gone and (said is None or not said.ended):
            self.replies.fail(ProtocolBroken("the answer was cut"))

    @property
    def outcome(self) -> str:
        """How it ended, in a word."""
        said = self._writes_to
        if said is None or not said.ended:
            return "left"
        if self._picked is None:
            return "ours"
        if self.is_unseen:
            return "unseen"
        return "answered" if self._answering is said else "cut"

    @property
    def is_passing(self) -> bool:
        """Whether an answer of the gateway in front goes by."""
        return self._passing is not None

    @property
    def is_unseen(self) -> bool:
        """Whether its answer will not be shown."""
        return self._modes.response is BodyMode.NONE

    @property
    def head(self) -> HeadShown:
        """The head of the request."""
        assert self._head is not None, "nothing is served before it"
        return self._head

    @property
    def path(self) -> bytes:
        """With its query, as the gateway in front has it."""
        return value_of(self.head.fields, b":path") or b"/"

    def scope(self) -> Scope:
        """The request as an ASGI application gets it."""
        fields = self.head.fields
        raw_path, _, query = self.path.partition(b"?")
        return {
            "type": "http",
            "asgi": _ASGI,
            "http_version": "1.1",
            "server": None,
            "client": None,
            "scheme": (value_of(fields, b":scheme") or b"http").decode("latin-1"),
            "method": (value_of(fields, b":method") or b"").decode("latin-1"),
            "root_path": "",
            "path": unquote(raw_path.decode("latin-1")),
            "raw_path": raw_path,
            "query_string": query,
            "headers": without_pseudo(fields),
            "extensions": {EXTENSION: self},
        }

    # What the edge asks: a `ServedRequest`.

    @property
    def is_slow(self) -> bool:
        """As `ServedRequest`."""
        return self.replies.is_slow

    async def readable(self) -> None:
        """As `ServedRequest`."""
        await self.replies.readable()

    def on_leave(self, callback: Callable[[], object] | None) -> None:
        """As `ServedRequest`."""
        self._on_leave = callback
        if self.gone and callback is not None:
            callback()

    async def whole_body(self, allow: Callable[[int], object]) -> bytes:
        """As `ServedRequest`."""
        return await self._body.whole(allow)

    def start(self, status: int, fields: Headers) -> None:
        """As `ServedRequest`."""
        answering = self._answering
        if answering is None or (self._feed.left and not isinstance(answering, FullDuplex | Bodiless | Unseen)):
            answering = Immediate(self.replies)  # no head of ours has gone: it is not the engine's answer, but an error
        self._writes_to = answering
        answering.start(status, fields)

    def write(self, body: bytes, *, more: bool) -> None:
        """As `ServedRequest`."""
        assert self._writes_to is not None, "its head comes first"
        if not self.gone:
            self._writes_to.write(body, more=more)
        if not more and self._feed.expired and isinstance(self._writes_to, Streamed):
            silent = ProtocolBroken("the engine is silent, so that no part is left to tell of it")
            self._feed.loop.call_later(GRACE_S, self.replies.fail, silent)

    # What the data plane asks.

    @property
    def is_picked(self) -> bool:
        """Whether the request is on its way."""
        return self._picked is not None

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where it may have gone."""
        return () if self._picked is None else self._picked.addresses

    def pick(self, picked: Picked, response: UpstreamResponse, deadlines: Deadlines) -> None:
        """Send the request on; the answer is for `response`."""
        assert self._asking is not None
        self._picked = picked
        if self.is_unseen:
            self._feed.patient = True
            self._unseen()
        self._feed.begin(response, deadlines.first_byte_s)
        self._asking.picked(picked)

    def line(self) -> Feed:
        """What the answer comes over."""
        return self._feed

    def answer_for(self, response: UpstreamResponse) -> None:
        """The answer that has come is for `response`, since it is another endpoint's."""
        self._feed.hand_over(response)

    # Messages.

    def _request_head(self, shown: HeadShown) -> None:
        if self._head is not None:
            raise ProtocolBroken("a second head of a request")
        self._head, self.context = shown, shown.context
        self._modes = shown.context.modes or self._modes
        if shown.context.observes:
            raise ModeUnsupported("observability_mode", "true", "nobody would hear where the request goes")
        if self._modes.response in (BodyMode.BUFFERED_PARTIAL, BodyMode.GRPC):
            answering_of(self._modes.response, self.replies, shown, ())
        self._asking = asking_of(self._modes.request, self.replies, has_body=not shown.ends)
        if shown.ends:
            self._body.end()

    def _request_body(self, shown: BodyShown) -> None:
        if self._head is None or self._body.is_whole:
            raise ProtocolBroken("a part of a request's body, out of order")
        self._body.add(shown.data)
        at_once = self._modes.request in (BodyMode.BUFFERED, BodyMode.BUFFERED_PARTIAL)
        if self._modes.request is BodyMode.BUFFERED_PARTIAL and not shown.ends:
            raise ModeUnsupported("request_body_mode", "BUFFERED_PARTIAL", "this body was longer than the buffer")
        if shown.ends or at_once:
            self._body_is_whole(by_trailers=False)

    def _body_is_whole(self, *, by_trailers: bool) -> None:
        assert self._asking is not None
        self._asking.body_came(self._body.end(), by_trailers=by_trailers)

    def _trailers(self, *, of_answer: bool) -> None:
        if of_answer:
            self._answer_trailers()
        elif self._asking is None:
            raise ProtocolBroken("trailers before a head")
        elif self._body.is_whole:
            self._asking.trailers_came()
        else:
            self._body_is_whole(by_trailers=True)

    def _answer_head(self, shown: HeadShown) -> None:
        if self._head is None or self._answering is not None or self._passing is not None:
            raise ProtocolBroken("the head of an answer, out of order")
        status = status_of(shown)
        if self._picked is None:
            self._passing = Passing(self.replies, self._modes.response)
            self.leave()
            return
        self.served, self.details = shown.context.served, shown.context.details
        self._answering = answering_of(self._modes.response, self.replies, shown, self.ours)
        if self.is_unseen:
            self._feed.head(status, (), ends=False)
            self._feed.chunk(SOMETHING if status < 400 else b"{}", ends=False)
            return
        fields = [field for field in shown.fields if not field[0].startswith(b":")]
        self._feed.head(status, response_headers(fields), ends=shown.ends)

    def _answer_body(self, shown: BodyShown) -> None:
        if self._passing is not None:
            self._passing.shown(shown.data, ends=shown.ends)
        elif self._answering is None or self.is_unseen:
            raise ProtocolBroken("a part of an answer's body, out of order")
        elif self._modes.response is BodyMode.BUFFERED and not shown.ends:  # it is whole all the same
            self._feed.chunk(shown.data, ends=False)
            self._feed.end()
        else:
            self._feed.chunk(shown.data, ends=shown.ends)

    def _answer_trailers(self) -> None:
        if self._passing is not None:
            self._passing.trailers_came()
        elif self._answering is None:
            raise ProtocolBroken("trailers before the head of an answer")
        else:
            self._answering.trailers_came()
            self._feed.end()

    def _handed(self, ends: bool) -> None:
        if self._answering is not None:
            self._answering.handed(ends=ends)

    def _wanted(self) -> None:
        if self._answering is not None:
            self._answering.wanted()


CURRENT: Final[ContextVar[Stream | None]] = ContextVar("stream", default=None)
"""The stream whose request this task serves; None: one of our own port."""
