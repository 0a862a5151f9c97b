"""Tokenising in segments: what was seen before is not tokenised again.

    "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
     `--cut----'`-seg-'`-cut----'`s'`--cut----'`-segment--'       ids of the whole = ids of the pieces, joined
        one id   cached  one id  ...

A tokenizer takes its cut tokens out of the raw text before it looks at anything else, and what is between two of them
never learns about its neighbours. So a conversation of forty turns costs the tokenisation of its last one.

That is true of most tokenizers, not of all: some put a dummy space in front of a text, or strip it. When a tokenizer is
loaded it is tried on texts that betray this (`_equal_in_segments`); one that fails always gets the whole text, which is
then the one segment. The tokens a tokenizer adds around a text by itself are treated likewise: constant ids before
and after if trials agree, else the whole text goes through it.

The work is in three steps, so that the long one can leave the event loop:
    begin     cut, look up           on the loop     100 µs for a known conversation of 33 KB
    compute   tokenise what is new   anywhere        0.5 to 1 ms a KB
    finish    keep, join             on the loop
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from prefix_index.segment_cache import ContentKey, SegmentCache, content_key
from prefix_index.tokens import WholeTokenizer, well_formed
from prefix_index.types import TokenIds

LOOP_SAFE_BYTES = 2_000
"""New text that may be tokenised on the event loop: under 2 ms at the 1.1 MB/s of the slowest tokenizer measured."""

_PROBES = (
    "",
    " ",
    "\n",
    "a",
    "Z9",
    "Hello world",
    "  two  spaces ",
    "\n\nlines\n ",
    "\t",
    "日本語のテキスト",
    "\u3000한국어 中文",
    "👩‍👩‍👧",
    "e\u0301 \u0301",
    "ﬁ Å ℌ",
    "def f(x):\n\treturn x  # 123",
    "<|im_start",
    "|>",
    "</s",
)
_PROBED_CUT_TOKENS = 3


@dataclass(frozen=True, slots=True)
class Missing:
    """A piece whose ids must still be computed; `key` is where they will be kept."""

    key: ContentKey
    text: str = field(repr=False)
    text_bytes: int
    add_special_tokens: bool


@dataclass(slots=True)
class Encoding:
    """A text on its way to ids: what the cache knew, and what must still be computed.

    `compute` does the work that may be long. It touches nothing shared and may run in a thread; `begin` and `finish`
    belong to the event loop.
    """

    pieces: list[TokenIds | Missing] = field(repr=False)
    tokenizer: WholeTokenizer | None = field(default=None, repr=False)
    cache: SegmentCache | None = field(default=None, repr=False)
    missing_bytes: int = 0
    _computed: dict[ContentKey, TokenIds] = field(default_factory=dict, repr=False)

    @property
    def is_long(self) -> bool:
        """Whether `compute` may take longer than 2 ms and so belongs in a thread."""
        return self.missing_bytes > LOOP_SAFE_BYTES

    def compute(self) -> None:
        """Tokenise what is missing, each distinct piece once. O(missing text)."""
        if self.tokenizer is None:
            return
        for piece in self.pieces:
            if isinstance(piece, Missing) and piece.key not in self._computed:
                ids = self.tokenizer.encode(piece.text, add_special_tokens=piece.add_special_tokens)
                self._computed[piece.key] = ids

    def finish(self) -> TokenIds:
        """All ids in order; what was computed is kept for the next text. Call after `compute`. O(tokens)."""
        if self.cache is not None:
            for key, tokens in self._computed.items():
                self.cache.put(key, tokens)
        computed = self._computed
        return TokenIds(b"".join([computed[p.key] if isinstance(p, Missing) else p for p in self.pieces]))


class SegmentedTokenizer:
    """A tokenizer with a cache of segments in front; gives exactly the ids of the tokenizer itself.

    `in_segments` tells whether it cuts, or always takes the text whole. `begin`, `finish` and `encode` belong to one
    thread, the event loop's.
    """

    def __init__(self, whole: WholeTokenizer, cache: SegmentCache) -> None:
        """Tries the tokenizer out; some 20 ms."""
        self.whole = whole
        self.fingerprint = whole.fingerprint
        self.exact = whole.exact
        self._cache = cache
        self._cut_ids = whole.cut_tokens
        self._cut = _alternatives(whole.cut_tokens)
        self.in_segments = _equal_in_segments(whole, self._cut)
        self._around = _added_around(whole) if self.in_segments else None

    def begin(self, text: str, *, add_special_tokens: bool) -> Encoding:
        """Cut `text` and look up its segments. O(length), about 1 ns a character and 0.7 µs a segment."""
        text = well_formed(text)
        if not self.in_segments or (add_special_tokens and self._around is None):
            return self._begun([self._piece(text, add_special_tokens=add_special_tokens)])
        pieces = [
            self._piece(piece, add_special_tokens=False) if ids is None else ids
            for piece, ids in _pieces(text, self._cut, self._cut_ids)
        ]
        if add_special_tokens and self._around is not None:
            pieces = [self._around[0], *pieces, self._around[1]]
        return self._begun(pieces)

    def encode(self, text: str, *, add_special_tokens: bool) -> TokenIds:
        """Token ids of `text`, all three steps at once."""
        encoding = self.begin(text, add_special_tokens=add_special_tokens)
        encoding.compute()
        return encoding.finish()

    def _piece(self, text: str, *, add_special_tokens: bool) -> TokenIds | Missing:
        content = text.encode()
        key = content_key(content, b"+" if add_special_tokens else b"")
        known = self._cache.get(key)
        return Missing(key, text, len(content), add_special_tokens) if known is None else known

    def _begun(self, pieces: list[TokenIds | Missing]) -> Encoding:
        missing_bytes = sum(piece.text_bytes for piece in pieces if isinstance(piece, Missing))
        return Encoding(pieces, self.whole, self._cache, missing_bytes)


def _alternatives(cut_tokens: Mapping[str, TokenIds]) -> re.Pattern[str] | None:
    """A pattern that finds the leftmost cut token, the longest of several at one place."""
    longest_first = sorted(cut_tokens, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first))) if longest_first else None


def _pieces(
    text: str, cut: re.Pattern[str] | None, cut_ids: Mapping[str, TokenIds]
) -> Iterator[tuple[str, TokenIds | None]]:
    """The pieces of `text` in order: segments with `None`, cut tokens with their ids."""
    at = 0
    for found in cut.finditer(text) if cut is not None else ():
        start, end = found.span()
        if start > at:
            yield text[at:start], None
        token = text[start:end]
        yield token, cut_ids[token]
        at = end
    if at < len(text):
        yield text[at:], None


def _equal_in_segments(whole: WholeTokenizer, cut: re.Pattern[str] | None) -> bool:
    """Whether the ids of the pieces are those of the whole, on texts that betray what tokenizers do at borders."""
    if cut is None:
        return True
    known: dict[str, TokenIds] = {}
    for cut_token in list(whole.cut_tokens)[:_PROBED_CUT_TOKENS]:
        for text in (f"{left}{cut_token}{right}{cut_token}" for left in _PROBES for right in _PROBES):
            joined = b""
            for piece, ids in _pieces(text, cut, whole.cut_tokens):
                if ids is None and piece not in known:
                    known[piece] = whole.encode(piece, add_special_tokens=False)
                joined += known[piece] if ids is None else ids
            if joined != whole.encode(text, add_special_tokens=False):
                return False
    return True


def _added_around(whole: WholeTokenizer) -> tuple[TokenIds, TokenIds] | None:
    """The ids a tokenizer adds before and after any text by itself; `None` where they depend on the text."""
    plain = whole.encode("a", add_special_tokens=False)
    before, found, after = whole.encode("a", add_special_tokens=True).partition(plain)
    if not found:
        return None
    for probe in (*_PROBES, *list(whole.cut_tokens)[:_PROBED_CUT_TOKENS]):
        bare = whole.encode(probe, add_special_tokens=False)
        if whole.encode(probe, add_special_tokens=True) != before + bare + after:
            return None
    return TokenIds(before), TokenIds(after)
