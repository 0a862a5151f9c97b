import json
import shutil
from pathlib import Path

import pytest

from prefix_index.errors import TemplateFailed, TokenizerUnavailable, UnsupportedContent
from prefix_index.prompt import PromptView, Unsupported, load_model_text
from prefix_index.prompt.model_directory import read_model_files
from tests.prefix_index.prompt_data import ids, model_directory, text_of

HI = PromptView(messages=[{"role": "user", "content": "Hi"}])


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A model without any template."""
    shutil.copy(model_directory() / "tokenizer.json", tmp_path)
    return tmp_path


def put(directory: Path, name: str, content: object) -> None:
    (directory / name).write_text(json.dumps(content), encoding="utf-8")


def test_the_template_of_the_configuration_is_used_with_its_special_tokens(directory: Path) -> None:
    put(
        directory,
        "tokenizer_config.json",
        {"chat_template": "{{ bos_token }}|{{ eos_token }}", "bos_token": "<s>", "eos_token": {"content": "</s>"}},
    )
    assert text_of(load_model_text(directory), HI) == "<s>|</s>"


def test_older_directories_keep_special_tokens_in_a_file_of_their_own(directory: Path) -> None:
    put(directory, "tokenizer_config.json", {"chat_template": "", "eos_token": "new", "bos_token": None})
    put(directory, "special_tokens_map.json", {"bos_token": "<s>", "eos_token": "old"})
    put(directory, "config.json", {"model_type": "llama"})
    assert read_model_files(directory).special_tokens == {"bos_token": "<s>", "eos_token": "new"}


def test_additional_special_tokens_are_a_list(directory: Path) -> None:
    put(directory, "tokenizer_config.json", {"additional_special_tokens": ["<a>", {"content": "<b>"}, 3]})
    assert read_model_files(directory).special_tokens == {"additional_special_tokens": ["<a>", "<b>"]}


def test_a_template_file_beside_the_tokenizer_wins_and_a_given_one_wins_over_it(directory: Path) -> None:
    put(directory, "tokenizer_config.json", {"chat_template": "config"})
    (directory / "chat_template.jinja").write_text("beside", encoding="utf-8")
    (directory / "mine.jinja").write_text("mine", encoding="utf-8")
    assert text_of(load_model_text(directory), HI) == "beside"
    assert text_of(load_model_text(directory, directory / "mine.jinja"), HI) == "mine"


def test_a_template_named_for_tools_is_used_when_there_are_tools(directory: Path) -> None:
    named = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}, "noise", {"name": 1}]
    put(directory, "tokenizer_config.json", {"chat_template": named})
    text = load_model_text(directory)
    tool = {"type": "function", "function": {"name": "f"}}
    assert text_of(text, HI) == "plain"
    assert text_of(text, PromptView(messages=HI.messages, tools=[tool])) == "tools"


def test_a_model_without_template_completes_but_does_not_chat(directory: Path) -> None:
    text = load_model_text(directory)
    assert ids(text, PromptView(prompt="Hello 123", add_special_tokens=True)) == [19556, 216, 33, 34, 35]
    assert ids(text, PromptView(prompt=[5, 6])) == [5, 6]
    with pytest.raises(TemplateFailed, match="no chat template"):
        text.begin(HI)


@pytest.mark.parametrize("kind", ["gpt_oss", "deepseek_v32"])
def test_models_whose_engines_render_by_code_are_known_not_to_be_known(directory: Path, kind: str) -> None:
    put(directory, "config.json", {"model_type": kind})
    put(directory, "tokenizer_config.json", {"chat_template": "x"})
    with pytest.raises(UnsupportedContent) as caught:
        load_model_text(directory).begin(HI)
    assert caught.value.kind == Unsupported.CUSTOM_ENCODER
    (directory / "own.jinja").write_text("own", encoding="utf-8")
    assert text_of(load_model_text(directory, directory / "own.jinja"), HI) == "own"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        (None, "no such file"),
        ("tiktoken.model", "a tiktoken tokenizer"),
        ("tokenizer.model", "a SentencePiece tokenizer"),
    ],
)
def test_a_directory_without_tokenizer_says_what_is_there_instead(tmp_path: Path, name: str | None, hint: str) -> None:
    if name:
        (tmp_path / name).touch()
    with pytest.raises(TokenizerUnavailable, match=hint):
        load_model_text(tmp_path)


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(TokenizerUnavailable, match="no such directory here, and nothing is downloaded"):
        load_model_text(tmp_path / "nowhere")


@pytest.mark.parametrize("content", ["{", "[]"])
def test_a_broken_configuration_is_named(directory: Path, content: str) -> None:
    (directory / "tokenizer_config.json").write_text(content)
    with pytest.raises(TokenizerUnavailable, match=r"tokenizer_config\.json"):
        load_model_text(directory)


def test_a_template_that_cannot_be_read_is_named(directory: Path) -> None:
    (directory / "bad.jinja").write_bytes(b"\xff\xfe\xff")
    for path in ("bad.jinja", "missing.jinja"):
        with pytest.raises(TokenizerUnavailable, match=path):
            load_model_text(directory, directory / path)
