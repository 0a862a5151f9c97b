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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from prefix_index.any_of import any_of
from prefix_index.segment_cache import ContentKey, SegmentCache
from prefix_index.tokens import WholeTokenizer, utf8
from prefix_index.types import TOKEN_BYTES, TokenIds

LOOP_SAFE_BYTES = 2_000
"""New text that may be tokenised on the event loop: under 2 ms at the 1.1 MB/s of the slowest tokenizer measured."""

LONGEST_CUT_BYTES = 4 * 1024 * 1024
"""A longer text, a million tokens of English, is one segment: cutting 16 MB of nothing but control tokens and looking
the pieces up held the event loop for 0.7 s. It is tokenised as a whole, off the loop."""

_NO_IDS = TokenIds(b"")
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
    """A piece whose ids must still be computed: its place among the pieces, where its ids will be kept, its UTF-8."""

    place: int
    key: ContentKey
    content: bytes = field(repr=False)
    add_special_tokens: bool = False


@dataclass(slots=True)
class Encoding:
    """A text on its way to ids: what the cache knew, and what must still be computed.

    `compute` does the work that may be long. It touches nothing shared and may run in a thread; `begin` and `finish`
    belong to the event loop.
    """

    pieces: list[TokenIds] = field(repr=False)
    missing: list[Missing] = field(default_factory=list, repr=False)
    tokenizer: WholeTokenizer | None = field(default=None, repr=False)
    cache: SegmentCache | None = field(default=None, repr=False)
    _computed: dict[ContentKey, TokenIds] = field(default_factory=dict, repr=False)

    @property
    def missing_bytes(self) -> int:
        """How much text must be tokenised."""
        return sum([len(piece.content) for piece in self.missing])

    @property
    def is_long(self) -> bool:
        """Whether `compute` may take longer than 2 ms and so belongs in a thread."""
        return self.missing_bytes > LOOP_SAFE_BYTES

    def compute(self) -> None:
        """Tokenise what is missing, each distinct piece once. O(missing text)."""
        if self.tokenizer is None:
            return
        for piece in self.missing:
            if piece.key not in self._computed:
                text = piece.content.decode()
                self._computed[piece.key] = self.tokenizer.encode(text, add_special_tokens=piece.add_special_tokens)

    def finish(self) -> TokenIds:
        """All ids in order; what was computed is kept for the next text. Call after `compute`. O(tokens)."""
        if self.cache is not None:
            for key, tokens in self._computed.items():
                self.cache.put(key, tokens)
        for piece in self.missing:
            self.pieces[piece.place] = self._computed[piece.key]
        return TokenIds(b"".join(self.pieces))


class SegmentedTokenizer:
    """A tokenizer with a cache of segments in front; gives exactly the ids of the tokenizer itself.

    `in_segments` tells whether it cuts, or always takes the text whole; `adds_before` whether it puts a token of its
    own in front of a text. `begin`, `finish` and `encode` belong to one thread, the event loop's.
    """

    def __init__(self, whole: WholeTokenizer, cache: SegmentCache) -> None:
        """Tries the tokenizer out; some 20 ms."""
        self.whole = whole
        self._cache = cache
        self._cut_ids = {token.encode(): ids for token, ids in whole.cut_tokens.items()}
        self._cut = _any_of(whole.cut_tokens)
        self.in_segments = _equal_in_segments(whole, self._cut, self._cut_ids)
        self._around = _added_around(whole) if self.in_segments else None
        self.adds_before = not whole.encode("a", add_special_tokens=True).startswith(
            whole.encode("a", add_special_tokens=False)[:TOKEN_BYTES]
        )

    def begin(self, text: str, *, add_special_tokens: bool) -> Encoding:
        """Cut `text` and look up its segments. O(length): about 1 µs a KB and 1 µs a segment.

        Works on UTF-8, which can be cut and searched like text but is hashed as it is.
        """
        return self.begin_all((text,), add_special_tokens=add_special_tokens)

    def begin_all(self, pieces: Sequence[str | TokenIds], *, add_special_tokens: bool, space: int = 0) -> Encoding:
        """Like `begin`, for texts with ids between them. Tokens of its own go around the first text. What was seen in
        another `space` of the cache is not known here."""
        encoding = Encoding([], [], self.whole, self._cache)
        for piece in pieces:
            if isinstance(piece, str):
                self._look_up(utf8(piece), encoding, add_special_tokens, space)
                add_special_tokens = False
            else:
                encoding.pieces.append(piece)
        return encoding

    def encode(self, text: str, *, add_special_tokens: bool) -> TokenIds:
        """Token ids of `text`, all three steps at once."""
        encoding = self.begin(text, add_special_tokens=add_special_tokens)
        encoding.compute()
        return encoding.finish()

    def _look_up(self, content: bytes, encoding: Encoding, add_special_tokens: bool, space: int) -> None:
        """Add the ids of `content` to `encoding`, so far as they are known."""
        around = self._around if add_special_tokens else (_NO_IDS, _NO_IDS)
        found, missing = encoding.pieces, encoding.missing
        key_of, lookup = self._cache.key_of, self._cache.get
        if not self.in_segments or around is None or len(content) > LONGEST_CUT_BYTES:
            key = key_of(content, b"+" if add_special_tokens else b"", space)
            known = lookup(key)
            if known is None:
                missing.append(Missing(len(found), key, content, add_special_tokens))
            found.append(known or _NO_IDS)
            return
        cut: list[bytes] = self._cut.split(content)
        cut[1::2] = map(self._cut_ids.__getitem__, cut[1::2])
        found.append(around[0])
        first = len(found)
        segments = [place for place in range(0, len(cut), 2) if cut[place]]
        looked_up = self._cache.find([cut[place] for place in segments], space)
        for place, (key, known) in zip(segments, looked_up, strict=True):
            if known is None:
                missing.append(Missing(first + place, key, cut[place]))
            cut[place] = known or _NO_IDS
        found += map(TokenIds, cut)
        found.append(around[1])


def _any_of(tokens: Iterable[str]) -> re.Pattern[bytes]:
    """Splits UTF-8 at the leftmost token, the longest of several at one place; at nothing where there are none."""
    return re.compile(f"({any_of(token.encode().decode('latin-1') for token in tokens)})".encode("latin-1"))


def _equal_in_segments(whole: WholeTokenizer, cut: re.Pattern[bytes], cut_ids: Mapping[bytes, TokenIds]) -> bool:
    """Whether the ids of the pieces are those of the whole, on texts that betray what tokenizers do at borders."""
    known: dict[bytes, TokenIds] = {b"": _NO_IDS, **cut_ids}
    for cut_token in list(whole.cut_tokens)[:_PROBED_CUT_TOKENS]:
        for text in (f"{left}{cut_token}{right}{cut_token}" for left in _PROBES for right in _PROBES):
            pieces = cut.split(text.encode())
            for piece in pieces:
                if piece not in known:
                    known[piece] = whole.encode(piece.decode(), add_special_tokens=False)
            if b"".join([known[piece] for piece in pieces]) != whole.encode(text, add_special_tokens=False):
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
