"""A byte-level BPE `tokenizer.json` run by tiktoken: the same ids in a quarter of the time or less.

    text --normalised, cut by a pattern--> words --joined pair by pair, lowest rank first--> ids

`tokenizers` joins the pairs that the file lists; tiktoken joins any neighbours whose bytes together are a token. They
agree on every text where

 1. ids rise with the places of the merges that make them, so that "lowest id" is "first in the list";
 2. every token, given as text, is encoded as itself, or is listed with all its pairs;
 3. where one token is made by two pairs that overlap (x, y, z: x+y is y+z), the left one is listed first, or no text
    ever comes to x, y, z.

For let there be a first step at which they differ. There, tiktoken joins neighbours a and b, which nobody listed, to a
token t. Until then nothing was joined across the outer borders of a and b nor across the one between them, so the text
of t alone comes to the same two neighbours, and `tokenizers` leaves them so. But (2) says that it makes t of them. (3)
is for two joins of one rank, and by the same argument it is enough to look at the text of x, y and z alone. All three
are checked when a file is loaded, on all of its tokens: 0.3 s of the processor for 49,000, 1 s for 150,000, 2 s for
128,000 where words that are tokens are not joined.

How text is cut into words before must be the same too: `_PATTERNS` are those of the model families, given to tiktoken
in its terms. A file that is not of this kind, or fails a check, is left to `tokenizers`; so is a text with a byte for
which there is no token, which `tokenizers` would leave out.
"""

import json
import re
from array import array
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import pairwise
from typing import Any

import tiktoken
import tokenizers

from prefix_index.token_bytes import pack
from prefix_index.types import TokenIds

_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN = _LLAMA3.replace("{1,3}", "")
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_GPT2_DIGITS_FIRST = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?=\p{N})|\s+(?!\S)|\s+"
"""Each digit is taken out before the rest is cut, so the space in front of one ends its piece and keeps its last."""

_PATTERNS = frozenset({_LLAMA3, _QWEN, _GPT2})
"""Split patterns known to leave no character of any text out."""

LONGEST_CHARS = 500_000
"""tiktoken's search for words gives up with a panic where a million characters of space stand in a row."""

PIECE_CHARS = 512
LONGEST_PIECE_CHARS = 20_000
_ASCII = re.compile(r"[\x00-\x7f]")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")

Json = Mapping[str, Any]


class BytePairs:
    """Ids of texts that hold no added token. Safe to call from several threads.

    `encoding` is what tiktoken runs: the same tokens under the same ids, none of them special.
    """

    def __init__(
        self, encoding: tiktoken.Encoding, without_token: bytes, normalizer: tokenizers.normalizers.Normalizer | None
    ) -> None:
        self.encoding = encoding
        self._without_token = without_token
        self._normalizer = normalizer

    def encode(self, text: str) -> TokenIds | None:
        """Token ids of well-formed `text`; None where it has a byte without a token, or is or goes on for too long.
        O(length)."""
        if len(text) > LONGEST_CHARS:
            return None
        if self._normalizer is not None and not text.isascii():
            composed = in_pieces(self._normalizer, text)
            if composed is None:
                return None
            text = composed
        if self._without_token:
            content = text.encode()
            if len(content.translate(None, self._without_token)) != len(content):
                return None
        return pack(array("I", self.encoding.encode_ordinary(text)))


def in_pieces(normalizer: tokenizers.normalizers.Normalizer, text: str) -> str | None:
    """`text` in NFC, normalised in pieces; None where one is longer than `LONGEST_PIECE_CHARS`. O(length).

    The library keeps all other threads waiting while it normalises, 0.1 to 0.3 ms for 1,000 characters. An ASCII
    character never joins what is before it, so a text may be cut there.
    """
    pieces: list[str] = []
    at = 0
    while (found := _NOT_ASCII.search(text, at)) is not None:
        begin = max(at, found.start() - 1)
        border = _ASCII.search(text, found.start() + PIECE_CHARS)
        end = len(text) if border is None else border.start()
        if end - begin > LONGEST_PIECE_CHARS:
            return None
        pieces += (text[at:begin], normalizer.normalize_str(text[begin:end]))
        at = end
    return "".join([*pieces, text[at:]])


def byte_pairs(data: bytes, inner: tokenizers.Tokenizer) -> BytePairs | None:
    """The tokenizer of a `tokenizer.json`, given as `data` and loaded as `inner`; None where it is not proved equal."""
    file = json.loads(data)
    model, pattern, normalizer = file["model"], _pattern(file.get("pre_tokenizer")), file.get("normalizer")
    if pattern is None or normalizer not in (None, {"type": "NFC"}) or not _joins_bytes_only(model):
        return None
    merges = [tuple(merge if isinstance(merge, list) else merge.split(" ")) for merge in model["merges"]]
    tokens, byte_of, vocab = ["".join(merge) for merge in merges], _bytes_of_characters(), model["vocab"]
    if not _in_order(tokens, byte_of, vocab) or not _left_first(merges):
        return None
    made = {*tokens, *byte_of} & vocab.keys()
    if len({vocab[token] for token in made}) != len(made):  # two tokens of one id, which tiktoken panics over
        return None
    if model.get("ignore_merges"):  # a word that is a token is not joined at all, in either library
        sound = len(made) == len(vocab) and _all_pairs_listed(made, merges)
    else:
        sound = all(len(inner.model.tokenize(token)) == 1 for token in made)
    if not sound:
        return None
    ranks = {bytes(byte_of[char] for char in token): vocab[token] for token in made}
    without_token = bytes(byte for byte in range(256) if bytes([byte]) not in ranks)
    unused = max(vocab.values()) + 1
    ranks |= {bytes([byte]): unused + place for place, byte in enumerate(without_token)}
    encoding = tiktoken.Encoding("tokenizer.json", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    ranks.clear()  # the object keeps a reference and has no use for it: 6 MB of 49,000 tokens, beside a copy in Rust
    return BytePairs(encoding, without_token, inner.normalizer)


def _joins_bytes_only(model: Json) -> bool:
    extras = ("dropout", "unk_token", "byte_fallback", "continuing_subword_prefix", "end_of_word_suffix")
    return model.get("type") == "BPE" and not any(model.get(extra) for extra in extras)


def _in_order(tokens: Sequence[str], byte_of: Mapping[str, int], vocab: Mapping[str, int]) -> bool:
    """Condition 1, and that there is nothing in the file but bytes and what merges make of them."""
    if not all(token in vocab and all(char in byte_of for char in token) for token in tokens):
        return False
    ids = [vocab[token] for token in tokens]
    return ids == sorted(ids) and max((vocab[char] for char in byte_of if char in vocab), default=0) < min(
        ids, default=1
    )


def _all_pairs_listed(tokens: Set[str], merges: Iterable[tuple[str, ...]]) -> bool:
    """Condition 2, its second half."""
    listed = set(merges)
    pairs = ((token[:at], token[at:]) for token in tokens for at in range(1, len(token)))
    return all(pair in listed for pair in pairs if pair[0] in tokens and pair[1] in tokens)


def _left_first(merges: Iterable[tuple[str, ...]]) -> bool:
    """Condition 3."""
    place_of = {merge: place for place, merge in enumerate(merges)}
    for (x, y), place in place_of.items():
        token = x + y
        z = token[len(y) :]
        other = place_of.get((y, z)) if token.startswith(y) else None
        if other is not None and other < place and _joined_until(token + z, other, place_of) == [x, y, z]:
            return False
    return True


def _joined_until(text: str, limit: int, place_of: Mapping[tuple[str, ...], int]) -> list[str]:
    """`text` when all pairs listed before `limit` are joined."""
    parts = list(text)
    while True:
        places = [place_of.get(pair, limit) for pair in pairwise(parts)]
        first = min(places, default=limit)
        if first >= limit:
            return parts
        at = places.index(first)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]


def _pattern(pre_tokenizer: Json | None) -> str | None:
    """How words are cut, as one pattern; None for a way that is not known here."""
    steps = [pre_tokenizer or {}]
    if steps[0].get("type") == "Sequence":
        steps = steps[0]["pretokenizers"] or [{}]
    *before, last = steps
    if last.get("type") != "ByteLevel" or last.get("add_prefix_space"):
        return None
    if last.get("use_regex", True):
        digits_first = before == [{"type": "Digits", "individual_digits": True}]
        return _GPT2_DIGITS_FIRST if digits_first else None if before else _GPT2
    if len(before) != 1 or before[0].get("type") != "Split" or before[0].get("invert"):
        return None
    pattern = before[0]["pattern"].get("Regex")
    return pattern if before[0].get("behavior") == "Isolated" and pattern in _PATTERNS else None


def _bytes_of_characters() -> dict[str, int]:
    """The characters that stand for bytes in such files: those that print for themselves, others from U+0100 on."""
    printing = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in printing]
    return {chr(byte): byte for byte in printing} | {chr(256 + place): byte for place, byte in enumerate(others)}
