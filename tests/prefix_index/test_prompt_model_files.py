"""Files a model's text can come from, and models that only their engine can read."""

import base64
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from prefix_index.errors import TemplateFailed, TokenizerUnavailable, UnsupportedContent
from prefix_index.prompt import PromptView, Rendered, Unsupported, load_model_text
from prefix_index.prompt.model_directory import read_model_files
from prefix_index.types import TokenIds
from tests.prefix_index.prompt_data import DATA, ids, model_directory, text_of

HI = PromptView(messages=[{"role": "user", "content": "Hi"}])
ADDED: dict[str, Any] = json.loads((DATA / "added_tokens_answers.json").read_text(encoding="utf-8"))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A model without any template."""
    shutil.copy(model_directory() / "tokenizer.json", tmp_path)
    return tmp_path


@pytest.fixture
def template(tmp_path: Path) -> Path:
    path = tmp_path / "mine.jinja"
    path.write_text("{% for m in messages %}{{ m.content }}<|endoftext|>{% endfor %}", encoding="utf-8")
    return path


@pytest.fixture
def bpe_file(tmp_path: Path) -> Path:
    lines = [base64.b64encode(bytes([byte])) + b" " + str(byte).encode() for byte in range(256)]
    path = tmp_path / "cl100k_base.tiktoken"
    path.write_bytes(b"\n".join(lines))
    return path


def put(directory: Path, name: str, content: object) -> None:
    (directory / name).parent.mkdir(exist_ok=True)
    (directory / name).write_text(json.dumps(content), encoding="utf-8")


@pytest.mark.parametrize("answer", ADDED["texts"], ids=lambda answer: answer["text"])
def test_a_configuration_adds_tokens_as_transformers_does(directory: Path, answer: dict[str, Any]) -> None:
    put(directory, "tokenizer_config.json", ADDED["tokenizer_config"])
    text = load_model_text(directory)
    assert ids(text, PromptView(prompt=answer["text"])) == answer["plain"]
    assert ids(text, PromptView(prompt=answer["text"], add_special_tokens=True)) == answer["with_special"]


def added(directory: Path) -> set[str]:
    """What the tokenizer of this directory cuts, beyond what its file alone would."""
    tokenizers = [load_model_text(path).tokenizer for path in (directory, directory / "tokenizer.json")]
    with_configuration, alone = (set(one.whole.cut_tokens) for one in tokenizers if one is not None)
    return with_configuration - alone


def test_tokens_of_a_configuration_are_added_but_known_ones_are_not(directory: Path) -> None:
    known = {"eos_token": "<|im_end|>", "additional_special_tokens": ["<|im_start|>"], "pad_token": None}
    put(directory, "tokenizer_config.json", known)
    assert added(directory) == set()
    put(directory, "tokenizer_config.json", {**known, "pad_token": "[PAD]"})
    assert added(directory) == {"[PAD]"}
    broken = {"added_tokens_decoder": {"x": {"content": "[X]"}, "7": {"content": 3}, "8": None}}
    put(directory, "tokenizer_config.json", broken)
    assert added(directory) == set()


def test_templates_may_lie_in_files_of_their_own(directory: Path) -> None:
    put(directory, "chat_template.json", {"chat_template": "processor"})
    assert text_of(load_model_text(directory), HI) == "processor"
    put(directory, "tokenizer_config.json", {"chat_template": "config"})
    assert text_of(load_model_text(directory), HI) == "config"
    (directory / "additional_chat_templates").mkdir()
    (directory / "additional_chat_templates" / "tool_use.jinja").write_text("tools", encoding="utf-8")
    tools = PromptView(messages=HI.messages, tools=[{"type": "function", "function": {"name": "f"}}])
    for default in ("config", "beside"):
        text = load_model_text(directory)
        assert (text_of(text, HI), text_of(text, tools)) == (default, "tools")
        (directory / "chat_template.jinja").write_text("beside", encoding="utf-8")


def test_a_tokenizer_file_alone_completes_and_with_a_template_chats(template: Path) -> None:
    file = model_directory() / "tokenizer.json"
    alone, with_template = load_model_text(file), load_model_text(file, template)
    assert ids(alone, PromptView(prompt="Hello")) == ids(with_template, PromptView(prompt="Hello")) == [19556]
    assert text_of(with_template, HI) == "Hi<|endoftext|>"
    with pytest.raises(TemplateFailed, match="no chat template"):
        alone.prompt_of(HI)


def test_a_tiktoken_file_alone_completes_and_with_a_template_chats(bpe_file: Path, template: Path) -> None:
    alone, with_template = load_model_text(bpe_file), load_model_text(bpe_file, template)
    assert ids(alone, PromptView(prompt="Hi")) == [72, 105]
    assert ids(with_template, HI) == [72, 105, 100257]
    assert alone.needs_engine is None
    with pytest.raises(TemplateFailed, match="no chat template"):
        alone.prompt_of(HI)


def test_an_encoding_is_given_or_in_the_files_name(bpe_file: Path, tmp_path: Path) -> None:
    named = tmp_path / "other.tiktoken"
    shutil.copy(bpe_file, named)
    with pytest.raises(TokenizerUnavailable, match="its encoding must be given, one of cl100k_base, o200k"):
        load_model_text(named)
    with pytest.raises(TokenizerUnavailable, match="its encoding must be given"):
        load_model_text(named, encoding="p50k_base")
    text = load_model_text(named, encoding="o200k_base")
    assert ids(text, PromptView(prompt="Hi<|endofprompt|>")) == [72, 105, 200018]


def test_a_directory_with_one_tiktoken_file_needs_only_its_encoding(bpe_file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    with pytest.raises(TokenizerUnavailable, match="there are 0 tiktoken files"):
        load_model_text(folder, encoding="cl100k_base")
    shutil.copy(bpe_file, folder / "tiktoken.model")
    assert ids(load_model_text(folder, encoding="cl100k_base"), PromptView(prompt="Hi")) == [72, 105]
    shutil.copy(bpe_file, folder / "b.tiktoken")
    with pytest.raises(TokenizerUnavailable, match="there are 2 tiktoken files"):
        load_model_text(folder, encoding="cl100k_base")


def test_harmony_in_tiktoken_form_completes_here_and_chats_at_the_engine(bpe_file: Path, template: Path) -> None:
    text = load_model_text(bpe_file, encoding="o200k_harmony")
    assert text.needs_engine == "harmony"
    assert ids(text, PromptView(prompt="<|start|>Hi")) == [200006, 72, 105]
    with pytest.raises(UnsupportedContent):
        text.prompt_of(HI)
    assert load_model_text(bpe_file, template, encoding="o200k_harmony").needs_engine is None


@pytest.mark.parametrize(
    ("config", "needs"),
    [
        ({"model_type": "gpt_oss"}, "harmony"),
        ({"architectures": ["GptOssForCausalLM"]}, "harmony"),
        ({"model_type": "deepseek_v32"}, "deepseek_v32"),
        ({"architectures": ["DeepseekV32ForCausalLM"], "model_type": "deepseek_v3"}, "deepseek_v32"),
        ({"architectures": ["DeepseekV4ForConditionalGeneration"]}, "deepseek_v4"),
        ({"architectures": ["DeepseekV41ForCausalLM"]}, "deepseek_v41"),
        ({"model_type": "kimi_k3"}, "kimi_k3"),
        ({"architectures": ["InklingForCausalLM"]}, "inkling"),
        ({"model_type": "llama", "architectures": ["LlamaForCausalLM"]}, None),
        ({"architectures": "LlamaForCausalLM", "model_type": 3}, None),
    ],
)
def test_models_whose_chats_are_written_by_code_say_which(
    directory: Path, template: Path, config: object, needs: str | None
) -> None:
    put(directory, "config.json", config)
    put(directory, "tokenizer_config.json", {"chat_template": "x"})
    text = load_model_text(directory)
    assert text.needs_engine == needs
    assert ids(text, PromptView(prompt="Hello")) == [19556], "completions need no engine"
    assert load_model_text(directory, template).needs_engine is None, "a template that is given is used"
    if needs is not None:
        for variant in (text, text.for_engine("sglang")):
            with pytest.raises(UnsupportedContent) as caught:
                variant.prompt_of(HI)
            assert caught.value.kind == Unsupported.CUSTOM_ENCODER


@pytest.mark.parametrize("own", ["tekken.json", "tokenizer.model.v3", "tokenizer.model.v7m1"])
def test_mistrals_own_tokenizer_is_left_to_the_engine(tmp_path: Path, own: str) -> None:
    (tmp_path / own).touch()
    text = load_model_text(tmp_path)
    assert text.needs_engine == "mistral"
    assert text.tokenizer is None
    assert ids(text, PromptView(prompt=[5, 6])) == [5, 6]
    for attempt in (
        lambda: text.prompt_of(HI),
        lambda: text.begin(PromptView(prompt="Hi")),
        lambda: text.count_tokens("Hi"),
        lambda: text.begin_prompt(Rendered(("Hi", TokenIds(b""))), add_special_tokens=False),
    ):
        with pytest.raises(UnsupportedContent) as caught:
            attempt()
        assert caught.value.kind == Unsupported.NO_TOKENIZER


def test_a_directory_with_two_tokenizers_is_mistrals_where_its_weights_are(directory: Path) -> None:
    put(directory, "tokenizer_config.json", {"chat_template": "x"})
    (directory / "tekken.json").touch()
    assert load_model_text(directory).needs_engine is None
    (directory / "consolidated.safetensors").touch()
    text = load_model_text(directory)
    assert text.needs_engine == "mistral"
    assert ids(text, PromptView(prompt="Hello")) == [19556]
    with pytest.raises(UnsupportedContent):
        text.prompt_of(HI)


def test_files_name_what_they_are(directory: Path) -> None:
    files = read_model_files(directory)
    assert files.tokenizer == directory / "tokenizer.json"
    assert (files.needs_engine, files.encoding, files.added_tokens) == (None, None, ())
