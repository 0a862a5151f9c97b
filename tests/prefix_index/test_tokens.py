import base64
import json
import sys
from array import array
from pathlib import Path

import pytest
import tiktoken
import tokenizers
from tokenizers import AddedToken, models, pre_tokenizers

from prefix_index.errors import TokenizerUnavailable, UnsupportedContent
from prefix_index.tiktoken_encodings import ENCODINGS
from prefix_index.token_bytes import pack, unpack
from prefix_index.tokens import HuggingFaceTokenizer, TiktokenTokenizer, WholeTokenizer, well_formed
from tests.prefix_index.prompt_data import model_directory, oracle

TEXTS = (
    "",
    "Hello 123",
    "<|im_start|>user\nsay <|im_end|> and <|im_star",
    "日本語 한국어 👩‍👩‍👧",
    "  \n\t  x",
    "e\u0301 \x00",
)


def ids(tokenizer: WholeTokenizer, text: str, *, add_special_tokens: bool = False) -> list[int]:
    return list(unpack(tokenizer.encode(text, add_special_tokens=add_special_tokens)))


@pytest.fixture(scope="module")
def smollm2() -> HuggingFaceTokenizer:
    return HuggingFaceTokenizer.from_file(model_directory() / "tokenizer.json")


@pytest.mark.parametrize("text", TEXTS)
def test_ids_are_those_of_the_library(smollm2: HuggingFaceTokenizer, text: str) -> None:
    assert ids(smollm2, text) == oracle().encode(text, add_special_tokens=False).ids


def test_ids_are_packed_little_endian(smollm2: HuggingFaceTokenizer) -> None:
    assert smollm2.encode("Hello", add_special_tokens=False) == (19556).to_bytes(4, "little")


def test_ids_are_packed_little_endian_on_any_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    ids_here = array("I", [1, 2**32 - 2])
    packed_here = pack(ids_here)
    monkeypatch.setattr(sys, "byteorder", "little" if sys.byteorder == "big" else "big")
    packed_there = pack(ids_here)
    assert packed_there == packed_here[3::-1] + packed_here[:3:-1]
    assert unpack(packed_there) == ids_here == array("I", [1, 2**32 - 2])


def test_truncation_and_padding_in_the_file_do_not_cut_prompts(tmp_path: Path) -> None:
    inner = tokenizers.Tokenizer.from_file(str(model_directory() / "tokenizer.json"))
    inner.enable_truncation(max_length=4)
    inner.enable_padding(length=9)
    inner.save(str(tmp_path / "tokenizer.json"))
    tokenizer = HuggingFaceTokenizer.from_file(tmp_path / "tokenizer.json")
    assert ids(tokenizer, "one two three four five six") == oracle().encode("one two three four five six").ids


@pytest.mark.parametrize("content", ["", "{}", "not json", '{"version": "1.0", "model": {"type": "Unheard"}}'])
def test_a_broken_tokenizer_file_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(content)
    with pytest.raises(TokenizerUnavailable) as caught:
        HuggingFaceTokenizer.from_file(path)
    assert caught.value.path == str(path)


PANICS = {
    "a table of characters that is none": {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}},
    "a token around texts that is none": {
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "missing", "type_id": 0}}],
            "pair": [],
            "special_tokens": {},
        }
    },
}


@pytest.mark.parametrize("change", PANICS.values(), ids=PANICS)
def test_a_file_that_the_library_panics_over_is_named(tmp_path: Path, change: dict[str, object]) -> None:
    data = json.loads((model_directory() / "tokenizer.json").read_text(encoding="utf-8"))
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(data | change), encoding="utf-8")
    with pytest.raises(TokenizerUnavailable, match=r"not a tokenizer\.json"):
        HuggingFaceTokenizer.from_file(path)


def test_two_tokens_of_one_number_are_named(bpe_file: Path) -> None:
    bpe_file.write_bytes(bpe_file.read_bytes() + base64.b64encode(b"hello") + b" 1\n")
    with pytest.raises(TokenizerUnavailable, match=r"not a \.tiktoken file"):
        TiktokenTokenizer.from_file(bpe_file, "cl100k_base")


def test_an_interruption_is_no_fault_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(data: bytes) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("prefix_index.tokens.tokenizers.Tokenizer.from_buffer", interrupted)
    with pytest.raises(KeyboardInterrupt):
        HuggingFaceTokenizer.from_file(model_directory() / "tokenizer.json")


@pytest.mark.parametrize(
    "load", [HuggingFaceTokenizer.from_file, lambda p: TiktokenTokenizer.from_file(p, "o200k_base")]
)
def test_a_missing_file_is_named(tmp_path: Path, load: object) -> None:
    assert callable(load)
    with pytest.raises(TokenizerUnavailable, match="No such file"):
        load(tmp_path / "missing")


def word_tokenizer(*added: AddedToken) -> HuggingFaceTokenizer:
    inner = tokenizers.Tokenizer(models.WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.add_special_tokens(list(added))
    return HuggingFaceTokenizer(inner)


@pytest.mark.parametrize(
    ("added", "cut"),
    [
        ([AddedToken("<x>", normalized=False), AddedToken("<y>", normalized=True)], {"<x>"}),
        ([AddedToken("<x>", normalized=False), AddedToken("[m]", normalized=False, lstrip=True)], {"<x>"}),
        ([AddedToken("<x>", normalized=False), AddedToken("[m]", normalized=False, rstrip=True)], {"<x>"}),
        ([AddedToken("<x>", normalized=False), AddedToken(">y", normalized=False, rstrip=True)], set()),
        ([AddedToken("<x>", normalized=False), AddedToken("x", normalized=False, rstrip=True)], set()),
        ([AddedToken("<x>", normalized=False), AddedToken("w", normalized=False, single_word=True)], set()),
        ([], set()),
    ],
)
def test_only_tokens_that_no_other_can_disturb_are_cut_at(added: list[AddedToken], cut: set[str]) -> None:
    assert word_tokenizer(*added).cut_tokens.keys() == cut


@pytest.fixture
def bpe_file(tmp_path: Path) -> Path:
    """All bytes and a few merges."""
    tokens = [bytes([byte]) for byte in range(256)] + [b"he", b"ll", b"hell", b" w", "日".encode()[:2], "日".encode()]
    path = tmp_path / "small.tiktoken"
    path.write_text("".join(f"{base64.b64encode(token).decode()} {rank}\n" for rank, token in enumerate(tokens)))
    return path


@pytest.mark.parametrize("encoding", sorted(ENCODINGS))
@pytest.mark.parametrize("text", [*TEXTS, "hello world<|endoftext|>it's 12345  \n\n x", "日本日" * 9])
def test_tiktoken_ids_are_those_of_the_library(bpe_file: Path, encoding: str, text: str) -> None:
    rules = ENCODINGS[encoding]
    lines = [line.split() for line in bpe_file.read_bytes().splitlines()]
    whole = tiktoken.Encoding(
        "oracle",
        pat_str=rules.pattern,
        mergeable_ranks={base64.b64decode(token): int(rank) for token, rank in lines},
        special_tokens=dict(rules.special_tokens),
    )
    tokenizer = TiktokenTokenizer.from_file(bpe_file, encoding)
    assert ids(tokenizer, text, add_special_tokens=True) == whole.encode(text, allowed_special="all")
    assert tokenizer.cut_tokens.keys() == rules.special_tokens.keys()


def test_what_tiktoken_gives_up_on_is_a_prompt_of_unknown_tokens_and_no_fault(bpe_file: Path) -> None:
    tokenizer = TiktokenTokenizer.from_file(bpe_file, "cl100k_base")
    with pytest.raises(UnsupportedContent):
        tokenizer.encode(" " * 1_200_000 + "a", add_special_tokens=False)


def test_a_tiktoken_file_can_be_replaced_by_another_of_the_same_name(bpe_file: Path) -> None:
    before = TiktokenTokenizer.from_file(bpe_file, "cl100k_base")
    bpe_file.write_bytes(bpe_file.read_bytes() + base64.b64encode(b"hello") + b" 262\n")
    after = TiktokenTokenizer.from_file(bpe_file, "cl100k_base")
    assert ids(after, "hello") != ids(before, "hello")


@pytest.mark.parametrize("content", [b"", b"x", b"@@@@ 1\n", b"YQ== one\n"])
def test_a_broken_tiktoken_file_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "broken.tiktoken"
    path.write_bytes(content)
    with pytest.raises(TokenizerUnavailable, match=r"not a \.tiktoken file"):
        TiktokenTokenizer.from_file(path, "cl100k_base")


def test_an_unknown_encoding_is_named_with_those_that_are_known(bpe_file: Path) -> None:
    with pytest.raises(TokenizerUnavailable, match="unknown encoding p50k_base; known: cl100k_base"):
        TiktokenTokenizer.from_file(bpe_file, "p50k_base")


def test_published_encodings_have_their_published_control_tokens() -> None:
    assert ENCODINGS["cl100k_base"].special_tokens["<|endofprompt|>"] == 100276
    harmony = ENCODINGS["o200k_harmony"].special_tokens
    assert (harmony["<|start|>"], harmony["<|channel|>"], harmony["<|reserved_201087|>"]) == (200006, 200005, 201087)
    assert harmony["<|reserved_200013|>"] == 200013


def test_a_lone_surrogate_becomes_one_replacement_character() -> None:
    assert well_formed("a\ud83d日\udc00b") == "a\ufffd日\ufffdb"
    assert well_formed("\ud83d\ude00") == "😀"
    assert well_formed("日本") == "日本"
