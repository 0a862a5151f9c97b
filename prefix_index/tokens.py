"""Tokenizers: text to token ids, whole, as one model's engine does it.

    HuggingFaceTokenizer   tokenizer.json, through the `tokenizers` library
    TiktokenTokenizer      a local .tiktoken file and the encoding's rules

Each names its *cut tokens*: those that its library takes out of the raw text before anything else looks at it. They
are what segments.py cuts at. Control tokens written in a user's text become control tokens here, because they do in
the engines.

Lone surrogates (JSON can spell them, UTF-8 cannot) become U+FFFD, one each; engines replace or refuse them.
Nothing is ever downloaded. Cost: 1 to 2 MB/s for `tokenizers`, 5 to 10 MB/s for tiktoken, 0.1 to 0.4 s to load.
"""

import binascii
import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import tiktoken
import tokenizers

from prefix_index.any_of import any_of
from prefix_index.byte_pairs import BytePairs, byte_pairs
from prefix_index.errors import TokenizerUnavailable, UnsupportedContent
from prefix_index.tiktoken_encodings import ENCODINGS
from prefix_index.token_bytes import pack
from prefix_index.types import TokenIds


class WholeTokenizer(Protocol):
    """A tokenizer that takes a text whole. Safe to call from several threads."""

    @property
    def cut_tokens(self) -> Mapping[str, TokenIds]:
        """Tokens that are cut out of the raw text exactly and before all else, with their ids; may be empty."""

    def encode(self, text: str, *, add_special_tokens: bool) -> TokenIds:
        """Token ids of `text`. O(length)."""


@dataclass(frozen=True, slots=True)
class AddedTokenSpec:
    """A token that a model's configuration adds to its tokenizer.json.

    `must_differ`: it is also added where the tokenizer has one of the same text with other properties, which it
    replaces; else only where there is none of this text.
    """

    text: str
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool = False
    special: bool = True
    must_differ: bool = False

    @classmethod
    def read(cls, token: object, *, must_differ: bool) -> "AddedTokenSpec | None":
        """A token of a configuration: a string, which is special, or an object; None for anything else."""
        if isinstance(token, str):
            return cls(token)
        if not isinstance(token, dict) or not isinstance(text := token.get("content"), str):
            return None
        special = bool(token.get("special", not must_differ))
        flags = {name: bool(token.get(name)) for name in ("single_word", "lstrip", "rstrip")}
        normalized = bool(token.get("normalized", not special))
        return cls(text, **flags, normalized=normalized, special=special, must_differ=must_differ)


class HuggingFaceTokenizer:
    """A `tokenizer.json`. Padding and truncation that the file may ask for are off, as in engines."""

    def __init__(self, inner: tokenizers.Tokenizer, fast: BytePairs | None = None) -> None:
        """`fast` gives the same ids for texts without added tokens."""
        inner.no_padding()
        inner.no_truncation()
        self._inner = inner
        self.cut_tokens = _cut_tokens(inner)
        added = {token.content for token in inner.get_added_tokens_decoder().values()}
        self._fast = fast if added == self.cut_tokens.keys() else None
        self._added = re.compile(any_of(added))

    @classmethod
    def from_file(cls, path: Path, added_tokens: Sequence[AddedTokenSpec] = ()) -> "HuggingFaceTokenizer":
        """Load a `tokenizer.json` and add what it lacks of `added_tokens`. Raises `TokenizerUnavailable`."""
        data = _read(path)
        with _faults_of(path, "tokenizer.json"):
            inner = tokenizers.Tokenizer.from_buffer(data)
            _add_tokens(inner, added_tokens)
            inner.encode("")  # tokens around a text that the file does not have show here first
            return cls(inner, byte_pairs(data, inner))

    def encode(self, text: str, *, add_special_tokens: bool) -> TokenIds:
        """Token ids of `text`."""
        text = well_formed(text)
        if self._fast is not None and not add_special_tokens and not self._added.search(text):
            ids = self._fast.encode(text)
            if ids is not None:
                return ids
        # The batch of one keeps no offsets, which nobody asks for here: a sixth less time.
        (encoding,) = self._inner.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        return pack(array("I", encoding.ids))


class TiktokenTokenizer:
    """A tiktoken encoding. It has no tokens of its own to add around a text."""

    def __init__(self, encoding: tiktoken.Encoding) -> None:
        self._encoding = encoding
        self.cut_tokens = {
            text: pack(array("I", encoding.encode(text, allowed_special="all"))) for text in encoding.special_tokens_set
        }

    @classmethod
    def from_file(cls, path: Path, encoding: str) -> "TiktokenTokenizer":
        """Load a local `.tiktoken` file as `encoding` (cl100k_base, o200k_base, o200k_harmony).

        Raises `TokenizerUnavailable` when the file is no such file or the encoding is not known here.
        """
        rules = ENCODINGS.get(encoding)
        if rules is None:
            raise TokenizerUnavailable(str(path), f"unknown encoding {encoding}; known: {', '.join(sorted(ENCODINGS))}")
        data = _read(path)
        with _faults_of(path, ".tiktoken file"):
            ranks = _ranks(data)
            inner = tiktoken.Encoding(
                encoding, pat_str=rules.pattern, mergeable_ranks=ranks, special_tokens=dict(rules.special_tokens)
            )
            ranks.clear()  # see byte_pairs
        return cls(inner)

    def encode(self, text: str, *, add_special_tokens: bool) -> TokenIds:
        """Token ids of `text`; `add_special_tokens` changes nothing.

        Raises `UnsupportedContent` for what the library's search for words gives up on: a million spaces in a row.
        """
        del add_special_tokens
        try:
            return pack(array("I", self._encoding.encode(well_formed(text), allowed_special="all")))
        except ValueError:
            raise UnsupportedContent("text") from None


def utf8(text: str) -> bytes:
    """`text` in UTF-8, with each lone surrogate replaced by U+FFFD. O(length)."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def well_formed(text: str) -> str:
    """`text`, with each lone surrogate replaced by U+FFFD. Returns `text` itself where that costs nothing to see."""
    return text if text.isascii() else utf8(text).decode()


@contextmanager
def _faults_of(path: Path, kind: str) -> Iterator[None]:
    """The libraries raise bare Exception for faults of a file, and panic over some of them, which is no Exception."""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise TokenizerUnavailable(str(path), f"not a {kind}: {error}") from None


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise TokenizerUnavailable(str(path), error.strerror or type(error).__name__) from None


def _ranks(data: bytes) -> dict[bytes, int]:
    """Byte strings and their ranks. (tiktoken's own loader would keep a copy by path, and not notice a new file.)"""
    ranks: dict[bytes, int] = {}
    for line in filter(None, data.splitlines()):
        token, rank = line.split()
        ranks[binascii.a2b_base64(token, strict_mode=True)] = int(rank)
    if any(bytes([byte]) not in ranks for byte in range(256)):
        raise ValueError("it does not hold all single bytes")
    return ranks


def _add_tokens(inner: tokenizers.Tokenizer, wanted: Sequence[AddedTokenSpec]) -> None:
    """Add what `inner` lacks, in order."""
    known = {token.content: token for token in inner.get_added_tokens_decoder().values()}
    missing: dict[str, AddedTokenSpec] = {}
    for spec in wanted:
        same = known.get(spec.text)
        if spec.text and spec.text not in missing and (same is None or (spec.must_differ and _differs(spec, same))):
            missing[spec.text] = spec
    inner.add_tokens([_added_token(spec) for spec in missing.values()])


def _differs(spec: AddedTokenSpec, token: tokenizers.AddedToken) -> bool:
    return repr(_added_token(spec)) != repr(token)


def _added_token(spec: AddedTokenSpec) -> tokenizers.AddedToken:
    return tokenizers.AddedToken(
        spec.text,
        single_word=spec.single_word,
        lstrip=spec.lstrip,
        rstrip=spec.rstrip,
        normalized=spec.normalized,
        special=spec.special,
    )


def _cut_tokens(inner: tokenizers.Tokenizer) -> dict[str, TokenIds]:
    """Added tokens that can be cut at; none where others could overlap them.

    The library takes added tokens out of the raw text first, leftmost and then longest, except those marked
    `normalized`, which it looks for later in the pieces. Tokens that eat space around them or want word borders stay
    inside their segment; that is right as long as no occurrence of one can overlap an occurrence of a cut token.
    """
    raw = [(number, token) for number, token in inner.get_added_tokens_decoder().items() if not token.normalized]
    plain = {token.content: number for number, token in raw if not (token.lstrip or token.rstrip or token.single_word)}
    plain.pop("", None)
    others = [token.content for _, token in raw if token.content not in plain]
    if any(token.single_word for _, token in raw) or any(_may_overlap(a, b) for a in plain for b in others):
        return {}
    return {text: pack(array("I", [number])) for text, number in plain.items()}


def _may_overlap(one: str, other: str) -> bool:
    """Whether occurrences of the two can share a character."""
    if one in other or other in one:
        return True
    shorter = min(len(one), len(other))
    return any(one[-k:] == other[:k] or other[-k:] == one[:k] for k in range(1, shorter))
