"""Text to token ids and back, with the model's own `tokenizer.json`."""

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class ModelTokenizer:
    """The tokenizer of one model directory; thread-safe."""

    def __init__(self, directory: Path) -> None:
        self._tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """Token ids of `text`; special tokens written out in it become special tokens, lone surrogates U+FFFD."""
        ids: list[int] = self._tokenizer.encode(well_formed(text), add_special_tokens=add_special_tokens).ids
        return ids

    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Text of `tokens`; bytes that are no UTF-8 become U+FFFD."""
        text: str = self._tokenizer.decode(list(tokens), skip_special_tokens=skip_special_tokens)
        return text

    def token_strings(self, tokens: Sequence[int]) -> list[str]:
        """The vocabulary entries of `tokens`, unknown ids as empty strings."""
        return [self._tokenizer.id_to_token(token) or "" for token in tokens]

    @property
    def vocab_size(self) -> int:
        """Number of tokens, added ones included."""
        return int(self._tokenizer.get_vocab_size(with_added_tokens=True))


def well_formed(text: str) -> str:
    """`text` with U+FFFD for each lone surrogate; neighbours that make a pair become their character."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class TextStream:
    """Text of a growing list of tokens, in pieces that never split a character.

        tokens   t0 t1 t2 | t3 t4 |  t5 ...
                 emitted    window   next
    A token may end inside a character, or need its left neighbour to be spelled right. So each step decodes a small
    window that starts one emission back, and emits what the window gained, unless it ends with U+FFFD: then the
    character may still be completed by the next token, and the window waits. O(window) a token; bytes that never become
    a character are emitted as U+FFFD as soon as a whole character follows, or at the end.
    """

    def __init__(self, tokenizer: ModelTokenizer) -> None:
        self._tokenizer = tokenizer
        self._window: list[int] = []
        self._emitted_tokens = 0
        self._emitted_text = ""

    def push(self, token: int) -> str:
        """Text that `token` completes, often more than its own, sometimes none."""
        self._window.append(token)
        text = self._tokenizer.decode(self._window)
        if text.endswith(REPLACEMENT) or len(text) <= len(self._emitted_text):
            return ""
        return self._advance(text)

    def flush(self) -> str:
        """What was held back, at the end of the stream."""
        return self._advance(self._tokenizer.decode(self._window))

    def _advance(self, text: str) -> str:
        gained = text[len(self._emitted_text) :]
        self._window = self._window[self._emitted_tokens :]
        self._emitted_tokens = len(self._window)
        self._emitted_text = self._tokenizer.decode(self._window)
        return gained


class StopFinder:
    """Finds stop strings in a stream of text pieces, holding back what might be the beginning of one."""

    def __init__(self, stop: Sequence[str]) -> None:
        self._stop = tuple(stop)
        self._hold_back = max((len(one) for one in stop), default=1) - 1
        self._held = ""

    def push(self, piece: str) -> tuple[str, str | None]:
        """Text that may be shown, and the stop string that was found; text from it on is dropped."""
        text = self._held + piece
        hits = [(at, one) for one in self._stop if (at := text.find(one)) >= 0]
        if hits:
            at, found = min(hits)
            self._held = ""
            return text[:at], found
        keep = len(text) - self._hold_back
        if keep <= 0:
            self._held = text
            return "", None
        self._held = text[keep:]
        return text[:keep], None

    def flush(self) -> str:
        """What was held back, at the end of the stream."""
        held, self._held = self._held, ""
        return held
