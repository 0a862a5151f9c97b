"""Segments against the whole: the same ids, for less work."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors, trainers

from prefix_index.prompt import PromptView, load_model_text
from prefix_index.segment_cache import SegmentCache
from prefix_index.segments import LONGEST_CUT_BYTES, LOOP_SAFE_BYTES, SegmentedTokenizer
from prefix_index.tokens import HuggingFaceTokenizer, WholeTokenizer
from prefix_index.types import TokenIds
from tests.prefix_index.prompt_data import DATA, chats, ids, model_directory

SPECIAL = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
PIECES = st.sampled_from(
    [
        *SPECIAL,
        *("<|im_start", "|>", "<|", "<", "<|im_end|", "</s>", "[INST]", "<unk>"),
        *(" ", "  ", "\n", "\n\n", "\t", "\u3000", "\u00a0", "\r\n"),
        *(
            "Hello",
            "world",
            "it's",
            "x1",
            "123",
            "日本語",
            "中文",
            "한국어",
            "👩‍👩‍👧",
            "😀",
            "e\u0301",
            "ﬁ",
            "ガ",
            "\x00",
        ),
        *("\ud83d", "\udc00"),
    ]
)
TEXTS = st.one_of(st.lists(PIECES, max_size=20).map("".join), st.text(max_size=40))


class Counting:
    """A tokenizer that remembers what it was asked."""

    def __init__(self, inner: WholeTokenizer) -> None:
        self._inner = inner
        self.cut_tokens: Mapping[str, TokenIds] = inner.cut_tokens
        self.asked: list[str] = []

    def encode(self, text: str, *, add_special_tokens: bool) -> TokenIds:
        self.asked.append(text)
        return self._inner.encode(text, add_special_tokens=add_special_tokens)


def small_tokenizer(change: Callable[[tokenizers.Tokenizer], None]) -> HuggingFaceTokenizer:
    """A byte-level BPE trained on a few lines, with ChatML's control tokens."""
    inner = tokenizers.Tokenizer(models.BPE(unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=["<unk>", *SPECIAL],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    inner.train_from_iterator(["Hello world, hello there", "it's 123 日本語 中文", "two  spaces\n\nlines"], trainer)
    change(inner)
    return HuggingFaceTokenizer(inner)


def nothing(inner: tokenizers.Tokenizer) -> None:
    del inner


def nfkc_and_lowercase(inner: tokenizers.Tokenizer) -> None:
    inner.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])


def strip(inner: tokenizers.Tokenizer) -> None:
    inner.normalizer = normalizers.Strip()


def dummy_space_in_front(inner: tokenizers.Tokenizer) -> None:
    inner.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")


def dummy_space_in_front_of_each_piece(inner: tokenizers.Tokenizer) -> None:
    inner.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    inner.pre_tokenizer = None


def begin_token(inner: tokenizers.Tokenizer) -> None:
    inner.post_processor = processors.TemplateProcessing(
        single="<|im_start|> $A", pair="<|im_start|> $A $B", special_tokens=[("<|im_start|>", 1)]
    )


def begin_and_end_token(inner: tokenizers.Tokenizer) -> None:
    inner.post_processor = processors.TemplateProcessing(
        single="<|im_start|> $A <|im_end|>", special_tokens=[("<|im_start|>", 1), ("<|im_end|>", 2)]
    )


def space_eating_token(inner: tokenizers.Tokenizer) -> None:
    inner.add_special_tokens([AddedToken("[INST]", lstrip=True, rstrip=True, normalized=False)])


def normalized_token(inner: tokenizers.Tokenizer) -> None:
    inner.normalizer = normalizers.Lowercase()
    inner.add_tokens([AddedToken("hello", normalized=True)])


CHANGES = [
    nothing,
    nfkc_and_lowercase,
    strip,
    dummy_space_in_front,
    dummy_space_in_front_of_each_piece,
    begin_token,
    begin_and_end_token,
    space_eating_token,
    normalized_token,
]
TOKENIZERS: dict[str, WholeTokenizer] = {
    "smollm2": HuggingFaceTokenizer.from_file(model_directory() / "tokenizer.json"),
    **{change.__name__: small_tokenizer(change) for change in CHANGES},
}
SEGMENTED = {name: SegmentedTokenizer(whole, SegmentCache(1 << 20)) for name, whole in TOKENIZERS.items()}


@pytest.mark.parametrize("name", SEGMENTED)
@settings(max_examples=150, deadline=None)
@given(text=TEXTS, add_special_tokens=st.booleans())
def test_segments_give_the_ids_of_the_whole(name: str, text: str, add_special_tokens: bool) -> None:
    whole = TOKENIZERS[name].encode(text, add_special_tokens=add_special_tokens)
    assert SEGMENTED[name].encode(text, add_special_tokens=add_special_tokens) == whole
    assert SEGMENTED[name].encode(text, add_special_tokens=add_special_tokens) == whole


@pytest.mark.parametrize(
    ("name", "in_segments"),
    [
        ("smollm2", True),
        ("nothing", True),
        ("nfkc_and_lowercase", True),
        ("dummy_space_in_front", False),
        ("begin_token", True),
        ("begin_and_end_token", True),
    ],
)
def test_tokenizers_are_cut_exactly_when_their_pieces_are_the_whole(name: str, in_segments: bool) -> None:
    assert SEGMENTED[name].in_segments is in_segments


def test_tokens_added_around_a_text_do_not_hinder_its_segments() -> None:
    counting = Counting(TOKENIZERS["begin_and_end_token"])
    tokenizer = SegmentedTokenizer(counting, SegmentCache(1 << 20))
    tokenizer.encode("one<|im_end|>two", add_special_tokens=True)
    counting.asked.clear()
    tokenizer.encode("one<|im_end|>two<|im_end|>three", add_special_tokens=True)
    assert counting.asked == ["three"]


def test_a_tokenizer_taken_whole_still_knows_a_text_it_has_seen() -> None:
    counting = Counting(TOKENIZERS["dummy_space_in_front"])
    tokenizer = SegmentedTokenizer(counting, SegmentCache(1 << 20))
    counting.asked.clear()
    text = "one<|im_end|>two"
    assert tokenizer.encode(text, add_special_tokens=False) == tokenizer.encode(text, add_special_tokens=False)
    assert counting.asked == [text]


def test_a_conversation_of_forty_turns_tokenises_only_its_last() -> None:
    counting = Counting(TOKENIZERS["smollm2"])
    text = load_model_text(model_directory(), DATA / "smollm2.jinja")
    text.tokenizer = SegmentedTokenizer(counting, text.cache)
    messages: list[dict[str, object]] = []
    for turn in range(40):
        messages.append({"role": "user", "content": f"Question {turn}"})
        counting.asked.clear()
        ids(text, PromptView(messages=messages))
        messages.append({"role": "assistant", "content": f"Answer {turn}"})
    assert counting.asked == ["assistant\nAnswer 38", "user\nQuestion 39"]


def test_a_piece_that_repeats_in_one_text_is_tokenised_once() -> None:
    counting = Counting(TOKENIZERS["smollm2"])
    tokenizer = SegmentedTokenizer(counting, SegmentCache(1 << 20))
    counting.asked.clear()
    tokenizer.encode("same<|im_end|>" * 5, add_special_tokens=False)
    assert counting.asked == ["same"]


def test_long_new_text_belongs_in_a_thread_and_known_text_does_not() -> None:
    tokenizer = SegmentedTokenizer(TOKENIZERS["smollm2"], SegmentCache(1 << 20))
    text = "日" * LOOP_SAFE_BYTES
    first = tokenizer.begin(text, add_special_tokens=False)
    assert first.is_long
    assert first.missing_bytes == 3 * LOOP_SAFE_BYTES
    first.compute()
    tokens = first.finish()
    again = tokenizer.begin(text, add_special_tokens=False)
    assert not again.is_long
    again.compute()
    assert again.finish() == tokens
    assert not tokenizer.begin("short", add_special_tokens=False).is_long


def test_a_text_longer_than_any_conversation_is_one_segment_and_not_cut_on_the_loop() -> None:
    tokenizer = SegmentedTokenizer(TOKENIZERS["smollm2"], SegmentCache(1 << 26))
    text = "<|im_end|>" * (LONGEST_CUT_BYTES // len("<|im_end|>"))
    assert not tokenizer.begin(text, add_special_tokens=False).missing
    longer = tokenizer.begin(text + "Hello", add_special_tokens=True)
    assert longer.is_long
    assert [piece.content for piece in longer.missing] == [text.encode() + b"Hello"]
    longer.compute()
    hello = tokenizer.encode("Hello", add_special_tokens=False)
    assert longer.finish() == tokenizer.encode(text, add_special_tokens=False) + hello


def test_a_tokenizer_without_cut_tokens_is_one_segment() -> None:
    words = tokenizers.Tokenizer(models.WordLevel({"?": 0, "abcd": 7}, unk_token="?"))
    tokenizer = SegmentedTokenizer(HuggingFaceTokenizer(words), SegmentCache(1 << 20))
    assert not tokenizer.whole.cut_tokens
    assert tokenizer.encode("abcd", add_special_tokens=True) == (7).to_bytes(4, "little")


@pytest.mark.parametrize("special", [True, False])
def test_each_space_has_a_text_tokenised_for_itself_and_to_the_same_ids(special: bool) -> None:
    tokenizer = SegmentedTokenizer(TOKENIZERS["smollm2"], SegmentCache(1 << 20))
    ids: list[bytes] = []
    for space in (1, 2, 1):
        encoding = tokenizer.begin_all(("known<|im_end|>words",), add_special_tokens=special, space=space)
        known = {piece.content for piece in encoding.missing}
        assert known == (set() if ids[1:] else {b"known", b"words"})
        encoding.compute()
        ids.append(encoding.finish())
    assert len(set(ids)) == 1


def test_the_texts_of_segments_show_in_no_repr() -> None:
    tokenizer = SegmentedTokenizer(TOKENIZERS["smollm2"], SegmentCache(1 << 20))
    encoding = tokenizer.begin("secret", add_special_tokens=False)
    encoding.compute()
    assert "secret" not in repr(encoding) + repr(encoding.pieces)


def test_longest_cut_token_wins_where_two_begin(tmp_path: Path) -> None:
    def two_lengths(inner: tokenizers.Tokenizer) -> None:
        inner.add_special_tokens([AddedToken("<a", normalized=False), AddedToken("<a>", normalized=False)])

    whole = small_tokenizer(two_lengths)
    tokenizer = SegmentedTokenizer(whole, SegmentCache(1 << 20))
    for text in ("<a>", "<a<a>x", "x<a >"):
        assert tokenizer.encode(text, add_special_tokens=False) == whole.encode(text, add_special_tokens=False)


class Whimsical:
    """A tokenizer with special tokens around a text that depend on it."""

    cut_tokens: Mapping[str, TokenIds] = {"<x>": TokenIds(b"xxxx")}

    def __init__(self, around: Callable[[bytes], bytes]) -> None:
        self._around = around

    def encode(self, text: str, *, add_special_tokens: bool) -> TokenIds:
        data = b"".join(b"xxxx" if part == "<x>" else part.encode("utf-32-le") for part in re.split("(<x>)", text))
        return TokenIds(self._around(data) if add_special_tokens else data)


@pytest.mark.parametrize("around", [lambda data: data[:0], lambda data: data + len(data).to_bytes(4, "little")])
def test_special_tokens_that_depend_on_the_text_are_left_to_the_tokenizer(around: Callable[[bytes], bytes]) -> None:
    whole = Whimsical(around)
    tokenizer = SegmentedTokenizer(whole, SegmentCache(1 << 20))
    for text in ("a<x>b", "", "<x>"):
        for add_special_tokens in (True, False):
            expected = whole.encode(text, add_special_tokens=add_special_tokens)
            assert tokenizer.encode(text, add_special_tokens=add_special_tokens) == expected


def test_cut_tokens_need_not_begin_alike() -> None:
    def brackets(inner: tokenizers.Tokenizer) -> None:
        inner.add_special_tokens([AddedToken("[INST]", normalized=False), AddedToken("</s>", normalized=False)])

    whole = small_tokenizer(brackets)
    text = "a[INST]b</s><|im_end|>[INST"
    tokenizer = SegmentedTokenizer(whole, SegmentCache(1 << 20))
    assert tokenizer.in_segments
    assert tokenizer.encode(text, add_special_tokens=False) == whole.encode(text, add_special_tokens=False)


def test_the_cache_of_a_model_stays_within_its_bound_after_many_prompts() -> None:
    text = load_model_text(model_directory(), cache_bytes=100_000)
    for number in range(2_000):
        ids(text, PromptView(prompt=f"unique {number} " + "word " * (number % 50)))
        assert text.cache.size_bytes <= 100_000
    assert len(text.cache) > 100


def test_two_models_never_share_a_cache() -> None:
    one, other = load_model_text(model_directory()), load_model_text(model_directory(), DATA / "smollm2.jinja")
    ids(one, chats()[0].view)
    assert len(other.cache) == 0
