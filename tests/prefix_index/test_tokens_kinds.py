"""Kinds of tokenizers models come with: cut into segments only where their pieces are the whole, and equal always."""

import base64
import functools
from collections.abc import Callable
from pathlib import Path

import pytest
import tiktoken
import tokenizers
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors, trainers

from prefix_index.segment_cache import SegmentCache
from prefix_index.segments import SegmentedTokenizer
from prefix_index.tiktoken_encodings import ENCODINGS
from prefix_index.token_bytes import unpack
from prefix_index.tokens import HuggingFaceTokenizer, TiktokenTokenizer, WholeTokenizer, well_formed
from prefix_index.types import TokenIds
from tests.prefix_index.prompt_data import model_directory
from tests.prefix_index.test_tokens_segments import TEXTS

CONTROL = ("<s>", "</s>", "<|im_start|>", "<|im_end|>", "[INST]", "[/INST]")
CORPUS = ["Hello world, hello there", "it's 123 日本語 中文 한국어", "two  spaces\n\nlines", "def f(x): return x"]
BYTES = [f"<0x{number:02X}>" for number in range(256)]
PROMPTS = st.one_of(
    TEXTS,
    st.lists(st.one_of(st.sampled_from(CONTROL), TEXTS, st.sampled_from(["ﬁ①", "İß", " ", "▁", "<0x41>"]))).map(
        "".join
    ),
)


def with_control_tokens(inner: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    inner.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in CONTROL])
    number = inner.token_to_id("<s>")
    inner.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", number)])
    return inner


def unigram(prepend_scheme: str) -> tokenizers.Tokenizer:
    """As SentencePiece's unigram models become: a dummy space, unknown characters as bytes."""
    words = [
        ("▁", -2.0),
        ("▁Hello", -3.0),
        ("Hello", -3.5),
        ("▁world", -3.0),
        ("lo", -4.0),
        ("日本", -4.0),
        ("語", -5.0),
    ]
    letters = [(letter, -6.0) for letter in "abcdefghijklmnopqrstuvwxyzHZ0123456789.,!?'"]
    inner = tokenizers.Tokenizer(
        models.Unigram([("<unk>", 0.0), *((byte, -9.0) for byte in BYTES), *words, *letters], 0, byte_fallback=True)
    )
    inner.normalizer = normalizers.NFKC()
    inner.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=prepend_scheme)
    inner.decoder = decoders.Metaspace(prepend_scheme=prepend_scheme)
    return with_control_tokens(inner)


def bpe_with_byte_fallback(normalizer: normalizers.Normalizer) -> tokenizers.Tokenizer:
    """As SentencePiece's BPE models become: no pre-tokenizer, spaces replaced, unknown characters as bytes."""
    trained = tokenizers.Tokenizer(models.BPE(unk_token="<unk>"))
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=["<unk>", *BYTES, "▁"], show_progress=False)
    trained.train_from_iterator(CORPUS, trainer)
    trained.model.byte_fallback = True
    trained.model.fuse_unk = True
    trained.pre_tokenizer = None
    trained.normalizer = normalizer
    return with_control_tokens(trained)


def byte_level(normalizer: normalizers.Normalizer | None, *, add_prefix_space: bool = False) -> tokenizers.Tokenizer:
    inner = tokenizers.Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    inner.train_from_iterator(CORPUS, trainer)
    if normalizer is not None:
        inner.normalizer = normalizer
    return with_control_tokens(inner)


def dummy_space() -> normalizers.Normalizer:
    return normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])


KINDS: dict[str, tuple[Callable[[], tokenizers.Tokenizer], bool]] = {
    "smollm2": (lambda: tokenizers.Tokenizer.from_file(str(model_directory() / "tokenizer.json")), True),
    "unigram_dummy_space_first": (lambda: unigram("first"), False),
    "unigram_dummy_space_always": (lambda: unigram("always"), True),
    "unigram_no_dummy_space": (lambda: unigram("never"), True),
    "bpe_byte_fallback_dummy_space": (lambda: bpe_with_byte_fallback(dummy_space()), True),
    "bpe_byte_fallback": (lambda: bpe_with_byte_fallback(normalizers.Replace(" ", "▁")), True),
    "byte_level": (lambda: byte_level(None), True),
    "byte_level_prefix_space": (lambda: byte_level(None, add_prefix_space=True), True),
    "byte_level_nfkc": (lambda: byte_level(normalizers.NFKC()), True),
    "byte_level_nfc_strip": (lambda: byte_level(normalizers.Sequence([normalizers.NFC(), normalizers.Strip()])), True),
}
"""Tokenizers as they are published, and whether they can be cut. In all that are, what is between two control tokens
goes through normalizer and model by itself; a dummy space put before the first piece only breaks that."""


@functools.cache
def whole(kind: str) -> tuple[tokenizers.Tokenizer, HuggingFaceTokenizer]:
    """A tokenizer of that kind, plain and ours, built twice so that neither changes the other."""
    build, _ = KINDS[kind]
    return build(), HuggingFaceTokenizer(build())


@functools.cache
def segmented(kind: str) -> SegmentedTokenizer:
    return SegmentedTokenizer(whole(kind)[1], SegmentCache(1 << 20))


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_is_cut_exactly_where_its_pieces_are_the_whole(kind: str) -> None:
    assert segmented(kind).in_segments is KINDS[kind][1]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=150, deadline=None)
@given(text=PROMPTS, add_special_tokens=st.booleans())
def test_segments_give_the_ids_of_the_library(kind: str, text: str, add_special_tokens: bool) -> None:
    expected = whole(kind)[0].encode(well_formed(text), add_special_tokens=add_special_tokens).ids
    for _ in range(2):
        found = segmented(kind).encode(text, add_special_tokens=add_special_tokens)
        assert list(unpack(found)) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_that_puts_a_token_in_front_says_so(kind: str) -> None:
    assert segmented(kind).adds_before is (kind != "smollm2")


@pytest.fixture(scope="module")
def bpe_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All single bytes and some merges."""
    merges = [b"he", b"ll", b"hell", b"hello", b" w", b"or", b" wor", "日".encode()[:2], "日".encode()]
    tokens = [*(bytes([byte]) for byte in range(256)), *merges]
    lines = [base64.b64encode(token) + b" " + str(rank).encode() for rank, token in enumerate(tokens)]
    path = tmp_path_factory.mktemp("bpe") / "small.tiktoken"
    path.write_bytes(b"\n".join(lines))
    return path


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_tiktoken_is_cut_at_its_control_tokens_and_gives_the_ids_of_the_library(encoding: str, bpe_file: Path) -> None:
    rules = ENCODINGS[encoding]
    library = tiktoken.Encoding(
        "library",
        pat_str=rules.pattern,
        mergeable_ranks={
            base64.b64decode(token): int(rank)
            for token, rank in (line.split() for line in bpe_file.read_bytes().splitlines())
        },
        special_tokens=dict(rules.special_tokens),
    )
    ours = SegmentedTokenizer(TiktokenTokenizer.from_file(bpe_file, encoding), SegmentCache(1 << 20))
    assert ours.in_segments
    assert not ours.adds_before
    control = st.sampled_from(list(rules.special_tokens)[:9])

    @settings(max_examples=200, deadline=None)
    @given(st.lists(st.one_of(control, TEXTS, st.sampled_from([" ", "\n", "hello", "'LL"]))).map("".join))
    def equal(text: str) -> None:
        expected = library.encode(well_formed(text), allowed_special="all")
        assert list(unpack(ours.encode(text, add_special_tokens=True))) == expected

    equal()


class Hidden:
    """A tokenizer whose words depend on what was before them, so that it may not be cut."""

    def __init__(self, inner: WholeTokenizer) -> None:
        self._inner = inner
        self.cut_tokens = inner.cut_tokens

    def encode(self, text: str, *, add_special_tokens: bool) -> TokenIds:
        found = self._inner.encode(text, add_special_tokens=add_special_tokens)
        units = len(
            text.encode("utf-16-le", "surrogatepass")
        )  # as many for a pair of surrogates as for what it stands for
        return TokenIds(found + units.to_bytes(4, "little"))


@settings(max_examples=50, deadline=None)
@given(text=PROMPTS)
@example(text="\ud83d\udc00")
def test_a_tokenizer_that_looks_at_the_whole_text_gets_it_whole(text: str) -> None:
    hidden = Hidden(whole("byte_level")[1])
    ours = SegmentedTokenizer(hidden, SegmentCache(1 << 20))
    assert not ours.in_segments
    expected = hidden.encode(text, add_special_tokens=False)
    assert ours.encode(text, add_special_tokens=False) == expected
