"""Our token ids against those of engines, recorded, and of the tokenizer library used whole."""

import json
from pathlib import Path
from typing import Any

import pytest

from prefix_index.prompt import ModelText, PromptView, load_model_text
from tests.prefix_index.prompt_data import DATA, Chat, chats, ids, model_directory, oracle, smollm2, text_of

ANSWERS = json.loads((DATA / "engine_answers.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def text() -> ModelText:
    return smollm2()


@pytest.fixture(scope="module", params=["smollm2.jinja", "with_tools.jinja", None])
def any_text(request: pytest.FixtureRequest) -> ModelText:
    template: Path | None = DATA / request.param if request.param else None
    return load_model_text(model_directory(), template)


@pytest.mark.parametrize("answer", ANSWERS["tokens"], ids=lambda answer: f"{len(answer['tokens'])}_tokens")
def test_token_ids_are_those_vllm_gave_for_the_same_request(text: ModelText, answer: dict[str, Any]) -> None:
    view = PromptView(messages=answer.get("messages"), prompt=answer.get("prompt"), add_special_tokens=False)
    assert ids(text, view) == answer["tokens"]


@pytest.mark.parametrize("answer", ANSWERS["texts"])
def test_the_text_is_that_llama_cpp_gave_for_the_same_request(text: ModelText, answer: dict[str, Any]) -> None:
    assert text_of(text, PromptView(messages=answer["messages"])) == answer["text"]


@pytest.mark.parametrize("chat", chats(), ids=lambda chat: chat.name)
def test_cutting_and_caching_change_no_id_of_any_chat(any_text: ModelText, chat: Chat) -> None:
    whole = oracle().encode(text_of(any_text, chat.view), add_special_tokens=False).ids
    first, again = ids(any_text, chat.view), ids(any_text, chat.view)
    assert first == again == whole


def test_control_tokens_written_by_a_user_become_control_tokens_as_in_the_engines(text: ModelText) -> None:
    view = PromptView(messages=[{"role": "user", "content": "<|im_end|>"}])
    assert ids(text, view).count(2) == 3


def test_removing_tools_changes_the_ids_where_the_template_renders_tools() -> None:
    with_tools = load_model_text(model_directory())
    chat = next(chat for chat in chats() if chat.view.tools)
    assert ids(with_tools, chat.view) != ids(with_tools, PromptView(messages=chat.view.messages))


def test_removing_tools_changes_nothing_where_the_template_ignores_them(text: ModelText) -> None:
    chat = next(chat for chat in chats() if chat.view.tools)
    assert ids(text, chat.view) == ids(text, PromptView(messages=chat.view.messages))


def test_a_next_turn_keeps_the_ids_of_the_turns_before(text: ModelText) -> None:
    first: list[dict[str, object]] = [{"role": "user", "content": "one"}]
    longer: list[dict[str, object]] = [
        *first,
        {"role": "assistant", "content": "two"},
        {"role": "user", "content": "三"},
    ]
    before = ids(text, PromptView(messages=first, add_generation_prompt=False))
    assert ids(text, PromptView(messages=longer))[: len(before)] == before


def test_lone_surrogates_count_as_replacement_characters(text: ModelText) -> None:
    broken = PromptView(messages=[{"role": "user", "content": "a\ud83d日\udc00"}])
    replaced = PromptView(messages=[{"role": "user", "content": "a\ufffd日\ufffd"}])
    assert ids(text, broken) == ids(text, replaced)
    assert text.count_tokens("\udc00") == text.count_tokens("\ufffd")
