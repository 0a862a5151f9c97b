"""An answer that is translated on its way: the tee looks at the engine's chat, the client gets its own dialect.

    upstream chunk --> StreamTee --> whole chat events --> translator.feed --> client
                          `--------- usage and end, held, durable --> translator.end --> client
    upstream body  --> PlainTee  --> all of it, held ----> translator.whole | refusal --> client

Held back are the same things as in any answer, so what is durable before the client sees the end stays the same.
"""

from typing import Final

from gateway.edge.translation import AnswerTranslator
from gateway.errors import UpstreamFailed
from gateway.relay import PlainTee, StreamTee
from gateway.stream_format import ChatFormat, MiB

MOST_TRANSLATED_BYTES: Final = 64 * MiB
"""A plain answer is translated as a whole, so it is kept as a whole."""


class WholeChatEvents(ChatFormat):
    """Chat events for a translator: none passes before it is whole, however long."""

    largest_event_bytes = MOST_TRANSLATED_BYTES


class TranslatedStream:
    """A chat stream that goes out as one of another dialect; `tee` is what the settler reads."""

    def __init__(self, translator: AnswerTranslator) -> None:
        self.tee = StreamTee(WholeChatEvents(), keep_usage=True)
        self._translator = translator

    def feed(self, chunk: bytes) -> bytes:
        """Take a chunk of the engine's, give what may go to the client now."""
        passed = self.tee.feed(chunk)
        return self._translator.feed(passed) if passed else b""

    def held(self) -> bytes:
        """The rest, once the usage is durable."""
        return self._translator.end(self.tee.held())


class TranslatedPlain:
    """A plain chat answer, or an error, that goes out in another dialect."""

    def __init__(self, translator: AnswerTranslator, status: int) -> None:
        self.tee = PlainTee()
        self._translator = translator
        self._status = status
        self._pieces: list[bytes] = []
        self._size_bytes = 0

    def feed(self, chunk: bytes) -> bytes:
        """Nothing goes out before the whole is here. Raises `UpstreamFailed` where it is too long to keep."""
        self.tee.feed(chunk)
        self._pieces.append(chunk)
        self._size_bytes += len(chunk)
        if self._size_bytes > MOST_TRANSLATED_BYTES:
            raise UpstreamFailed(f"the answer is longer than {MOST_TRANSLATED_BYTES} bytes and cannot be translated")
        return b""

    def held(self) -> bytes:
        """The whole answer. Raises `UpstreamFailed` where it is no chat completion."""
        self.tee.held()
        whole = b"".join(self._pieces)
        if self._status >= 400:
            return self._translator.refusal(self._status, whole)
        return self._translator.whole(whole)
