"""An answer that is translated on its way: the tee looks at the engine's chat, the client gets its own dialect.

    upstream chunk --> StreamTee --> whole chat events --> translator.feed --> client
                          `--------- usage and end, held, durable --> translator.end --> client
    upstream body  --> PlainTee  --> all of it, held ----> translator.whole | refusal --> client

Held back are the same things as in any answer, so what is durable before the client sees the end stays the same.
"""

from typing import Final

from gateway.edge.translation import AnswerTranslator
from gateway.errors import UpstreamFailed
from gateway.relay import MOST_PLAIN_BYTES, PlainTee, StreamTee
from gateway.stream_format import ChatFormat, MiB
from gateway.types import Headers

_JSON: Final = b"application/json"
_UNCODED: Final = frozenset({b"", b"identity"})


def must_be_uncoded(headers: Headers) -> None:
    """Raises `UpstreamFailed` where the body of an answer is compressed: nothing of it could be translated.

    Endpoints are asked for `identity`, so one that compresses does so against its instructions.
    """
    for name, value in headers:
        if name.lower() == b"content-encoding" and value.strip().lower() not in _UNCODED:
            raise UpstreamFailed("the endpoint compressed its answer, unasked; it cannot be translated")


class WholeChatEvents(ChatFormat):
    """Chat events for a translator: none passes before it is whole."""

    largest_event_bytes = 4 * MiB
    """What one chunk of a chat may be: a tool call told at once, or the log probabilities of some thousand tokens.
    Looking into one of 4 MiB takes 10 ms; engines send less than 64 KiB."""


class TranslatedStream:
    """A chat stream that goes out as one of another dialect; `tee` is what the settler reads."""

    content_type: Final = None
    """The client gets the engine's: streams are event streams in every dialect."""
    is_long: Final = False
    """`held` gives one event, and no long one."""

    def __init__(self, translator: AnswerTranslator) -> None:
        self.tee = StreamTee(WholeChatEvents(), keep_usage=True)
        self._translator = translator

    @property
    def inside_event(self) -> bool:
        """Never: a translator is given, and gives, whole events."""
        return False

    def feed(self, chunk: bytes) -> bytes:
        """Take a chunk of the engine's, give what may go to the client now.

        Raises `UpstreamFailed` where an event is too long to keep; what came before it in the chunk is lost.
        """
        passed = self.tee.feed(chunk)
        if self.tee.inside_event:
            raise UpstreamFailed(
                f"an event of the answer is longer than {WholeChatEvents.largest_event_bytes} bytes and cannot be "
                "translated"
            )
        return self._translator.feed(passed) if passed else b""

    def held(self) -> bytes:
        """The rest, once the usage is durable."""
        return self._translator.end(self.tee.held())


class TranslatedPlain:
    """A plain chat answer, or an error, that goes out in another dialect."""

    content_type: Final = _JSON
    """Whatever the engine's was: a proxy before it may have answered in HTML, the translation is JSON."""

    def __init__(self, translator: AnswerTranslator, status: int) -> None:
        self.tee = PlainTee()
        self._translator = translator
        self._status = status
        self._pieces: list[bytes] = []
        self._size_bytes = 0

    @property
    def is_long(self) -> bool:
        """Whether `held` takes so long that it belongs in a thread."""
        return self.tee.is_long

    def feed(self, chunk: bytes) -> bytes:
        """Nothing goes out before the whole is here. Raises `UpstreamFailed` where it is too long to keep."""
        self.tee.feed(chunk)
        self._pieces.append(chunk)
        self._size_bytes += len(chunk)
        if self._size_bytes > MOST_PLAIN_BYTES:
            raise UpstreamFailed(f"the answer is longer than {MOST_PLAIN_BYTES} bytes and cannot be translated")
        return b""

    def held(self) -> bytes:
        """The whole answer. Raises `UpstreamFailed` where it is no chat completion. May run in a thread."""
        self.tee.held()
        whole = b"".join(self._pieces)
        if self._status >= 400:
            return self._translator.refusal(self._status, whole)
        return self._translator.whole(whole)
