"""What is held after an answer: never more than the engine computed, and nothing that the next turn will not ask for.

The engine of these tests samples as trained models do: the tokens of prompt and answer, behind those of the prompt.
"""

import functools
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefix_index.errors import NothingHeld
from prefix_index.prompt import (
    AnswerSaid,
    ChatTemplate,
    ModelText,
    PromptView,
    Rendered,
    Renderer,
    Unheld,
    held_tokens,
    turn_texts,
)
from prefix_index.tokens import HuggingFaceTokenizer
from prefix_index.types import TOKEN_BYTES, TokenIds
from tests.prefix_index.prompt_data import model_directory, oracle

TURN = """{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' }}
{%- if message.role == 'assistant' %}{{- ANSWER }}{%- else %}{{- message.content }}{%- endif %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{{- OPENING }}{%- endif %}"""
THOUGHTS = "'<think>\\n' + (message.reasoning_content or '') + '\\n</think>\\n\\n' + message.content"
THOUGHTS_OF_LAST = f"{THOUGHTS} if loop.last else message.content"


def chat_template(answer: str, opening: str = "''") -> str:
    return TURN.replace("ANSWER", answer).replace("OPENING", opening)


TEMPLATES = {
    "says all": chat_template("message.content"),
    "trims": chat_template("message.content | trim"),
    "keeps thoughts": chat_template(THOUGHTS),
    "keeps thoughts it opened": chat_template(THOUGHTS, "'<think>\\n'"),
    "drops thoughts of turns before the last": chat_template(THOUGHTS_OF_LAST),
    "drops thoughts it opened": chat_template("message.content.split('</think>')[-1]", "'<think>\\n'"),
    "writes an empty thought": chat_template("message.content", "'<think>\\n\\n</think>\\n\\n'"),
    "keeps thoughts alone": chat_template("message.reasoning_content or ''"),
    "drops all answers": chat_template("''"),
    "has no marks": "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:",
    "tells tools last": chat_template("message.content").replace(
        "{{- message.content }}", "{%- if loop.last %}{{- 'TOOLS\\n' }}{%- endif %}{{- message.content }}"
    ),
}
NO_THOUGHTS = ("says all", "trims", "writes an empty thought", "drops all answers", "has no marks", "tells tools last")


@functools.cache
def tokenizer() -> HuggingFaceTokenizer:
    return HuggingFaceTokenizer.from_file(model_directory() / "tokenizer.json")


@functools.cache
def model(name: str) -> ModelText:
    return ModelText(tokenizer(), {"default": ChatTemplate(TEMPLATES[name])}, renderer=Renderer.VLLM)


def ids(text: ModelText, rendered: Rendered, *, special: bool = False) -> TokenIds:
    encoding = text.begin_prompt(rendered, add_special_tokens=special)
    encoding.compute()
    return encoding.finish()


def user(*words: str) -> PromptView:
    """A conversation: the user, the model, the user, ..."""
    roles = ("user", "assistant")
    return PromptView(messages=[{"role": roles[n % 2], "content": text} for n, text in enumerate(words)])


@dataclass(frozen=True, slots=True)
class Sampled:
    """What an engine made of a prompt: the tokens that it has, all of them computed, and how it counts them."""

    computed: TokenIds
    count: int


def sampled(text: ModelText, view: PromptView, raw: str, *, stopped: bool = True) -> Sampled:
    """The engine answers `raw`: the tokens of prompt and answer, the prompt's own in front."""
    prompt = text.prompt_of(view)
    *before, last = prompt.pieces
    assert isinstance(last, str)
    asked, whole = ids(text, prompt), ids(text, Rendered((*before, last + raw)))
    if not whole.startswith(asked):  # the two would merge, and the prompt is not computed anew
        whole = TokenIds(asked + tokenizer().encode(raw, add_special_tokens=False))
    count = (len(whole) - len(asked)) // TOKEN_BYTES
    return Sampled(whole, count + 1) if stopped else Sampled(TokenIds(whole[:-TOKEN_BYTES] if count else whole), count)


def claimed(text: ModelText, view: PromptView, said: AnswerSaid, count: int) -> TokenIds:
    texts = turn_texts(text, view, said)
    following = None if texts.following is None else ids(text, texts.following)
    asked, answered = ids(text, texts.asked), ids(text, texts.answered)
    return held_tokens(asked, answered, following, sampled_tokens=count, stopped=said.stopped)


def claimed_or_none(text: ModelText, view: PromptView, said: AnswerSaid, count: int) -> TokenIds | None:
    try:
        return claimed(text, view, said, count)
    except NothingHeld:
        return None


def why(text: ModelText, view: PromptView, said: AnswerSaid, count: int) -> Unheld:
    with pytest.raises(NothingHeld) as raised:
        claimed(text, view, said, count)
    return Unheld(raised.value.kind)


def asked_next(text: ModelText, view: PromptView, said: AnswerSaid, words: str) -> TokenIds:
    """The tokens of the next request, as a client makes it."""
    answer: dict[str, object] = {"role": "assistant", "content": said.text}
    if said.reasoning:
        answer["reasoning_content"] = said.reasoning
    assert view.messages is not None
    return ids(
        text, text.prompt_of(replace(view, messages=[*view.messages, answer, {"role": "user", "content": words}]))
    )


def test_an_answer_that_the_template_repeats_is_held_to_its_end() -> None:
    text, view, said = model("says all"), user("Hi"), AnswerSaid("The capital of France is Paris.")
    engine = sampled(text, view, said.text)
    assert engine.count == 8
    assert claimed(text, view, said, 8) == engine.computed
    assert asked_next(text, view, said, "And of Italy?").startswith(engine.computed)


def test_the_last_token_of_an_answer_that_met_its_limit_is_not_held() -> None:
    text, view, said = model("says all"), user("Hi"), AnswerSaid("The capital of France", stopped=False)
    engine = sampled(text, view, said.text, stopped=False)
    assert engine.count == 4
    assert claimed(text, view, said, 4) == engine.computed
    assert len(engine.computed) == len(ids(text, text.prompt_of(view))) + 3 * TOKEN_BYTES


def test_a_template_that_drops_thoughts_leaves_nothing_to_hold_although_it_repeats_those_of_the_last_answer() -> None:
    text, view = model("drops thoughts of turns before the last"), user("Hi")
    said = AnswerSaid("Paris.", "The user asks for a capital.")
    engine = sampled(text, view, "<think>\nThe user asks for a capital.\n</think>\n\nParis.")
    assert why(text, view, said, engine.count) is Unheld.REASONING_DROPPED
    untold = AnswerSaid("<think>\nThe user asks for a capital.\n</think>\n\nParis.")  # by an engine that parses nothing
    engine = sampled(model("drops thoughts it opened"), view, untold.text)
    assert why(model("drops thoughts it opened"), view, untold, engine.count) is Unheld.DIVERGED


def test_thoughts_that_the_template_keeps_are_held_with_what_it_writes_around_them() -> None:
    for name, opening in (("keeps thoughts", "<think>\n"), ("keeps thoughts it opened", "")):
        text, view, said = model(name), user("Hi"), AnswerSaid("Paris.", "A capital.")
        engine = sampled(text, view, f"{opening}A capital.\n</think>\n\nParis.")
        assert claimed(text, view, said, engine.count) == engine.computed
        assert asked_next(text, view, said, "And?").startswith(engine.computed)
        otherwise = sampled(text, view, f"{opening}A capital.\n\n\n</think>Paris.")
        assert why(text, view, said, otherwise.count) is Unheld.COUNT_DIFFERS


def test_thoughts_without_the_text_behind_them_are_not_known_to_be_what_was_sampled() -> None:
    text, view, said = model("keeps thoughts alone"), user("Hi"), AnswerSaid("Paris.", "A capital.")
    assert why(text, view, said, sampled(text, view, "A capital.Paris.").count) is Unheld.DIVERGED


def test_an_answer_cut_within_its_thoughts_is_held_where_the_template_keeps_them() -> None:
    text, view = model("keeps thoughts it opened"), user("Hi")
    said = AnswerSaid("", "The user asks for", stopped=False)
    engine = sampled(text, view, said.reasoning, stopped=False)
    assert claimed(text, view, said, engine.count) == engine.computed


def test_an_empty_thought_that_only_the_prompt_has_ends_what_is_in_common() -> None:
    text, view, said = model("writes an empty thought"), user("Hi"), AnswerSaid("The capital of France is Paris.")
    assert why(text, view, said, 8) is Unheld.DIVERGED


def test_a_template_that_trims_the_answer_leaves_what_stands_before_the_trimmed_end() -> None:
    text, view = model("trims"), user("Hi")
    said = AnswerSaid("The capital of France is Paris.\n\n")
    engine = sampled(text, view, said.text)
    held = claimed(text, view, said, engine.count)
    assert held == sampled(text, view, said.text.strip()).computed
    spaced = AnswerSaid("  The capital")
    assert why(text, view, spaced, sampled(text, view, spaced.text).count) is Unheld.DIVERGED


def test_tools_that_move_to_the_newest_question_end_what_is_in_common_before_the_answer() -> None:
    text, view, said = model("tells tools last"), user("Hi"), AnswerSaid("The capital of France is Paris.")
    assert why(text, view, said, 8) is Unheld.DIVERGED


def test_an_answer_that_melts_into_the_prompts_last_token_is_not_held() -> None:
    text, view = model("says all"), user("Hi")
    said = AnswerSaid("\n\nParis")
    engine = sampled(text, view, said.text)
    assert claimed_or_none(text, view, said, engine.count) in (None, engine.computed)
    plain = PromptView(prompt="The cap")
    melted = AnswerSaid("ital of France")
    assert why(text, plain, melted, sampled(text, plain, melted.text).count) in (Unheld.DIVERGED, Unheld.COUNT_DIFFERS)


def test_a_text_that_was_cut_inside_a_character_is_not_held() -> None:
    text, view = model("says all"), user("Hi")
    assert why(text, view, AnswerSaid("Paris \ufffd", stopped=False), 3) is Unheld.UNREADABLE_TEXT
    assert why(text, view, AnswerSaid("Paris", "\ufffd"), 3) is Unheld.UNREADABLE_TEXT
    assert why(text, view, AnswerSaid("\ufdd0", "Paris"), 3) is Unheld.UNREADABLE_TEXT


@pytest.mark.parametrize("difference", [-1, 1, 5])
def test_an_engine_that_sampled_another_number_of_tokens_sampled_others(difference: int) -> None:
    text, view, said = model("says all"), user("Hi"), AnswerSaid("The capital of France is Paris.")
    assert why(text, view, said, 8 + difference) is Unheld.COUNT_DIFFERS


def test_as_many_other_tokens_are_taken_for_those_of_the_text() -> None:
    """The known limit: a text does not tell. Until a receipt does, the index expects blocks that are not there."""
    text, view, said = model("says all"), user("Hi"), AnswerSaid("blogsuff")
    asked, usual = ids(text, text.prompt_of(view)), sampled(text, view, said.text)
    other = b"".join(tokenizer().encode(part, add_special_tokens=False) for part in ("blogs", "uff"))
    assert len(asked + other) == len(usual.computed)
    assert asked + other != usual.computed == claimed(text, view, said, 3)


@pytest.mark.parametrize("stopped", [True, False])
def test_an_answer_without_text_adds_nothing(stopped: bool) -> None:
    text, view = model("says all"), user("Hi")
    assert why(text, view, AnswerSaid("", stopped=stopped), 1 if stopped else 0) is Unheld.DIVERGED


def test_a_message_that_was_continued_comes_back_as_one() -> None:
    text = model("says all")
    view = replace(user("Where is Paris?", "It is the"), continue_final_message=True, add_generation_prompt=False)
    said = AnswerSaid(" capital of France.")
    engine = sampled(text, view, said.text)
    assert claimed(text, view, said, engine.count) == engine.computed
    assert view.messages is not None
    answer: dict[str, object] = {"role": "assistant", "content": "It is the capital of France."}
    after = PromptView(messages=[*view.messages[:-1], answer, {"role": "user", "content": "And?"}])
    assert ids(text, text.prompt_of(after)).startswith(engine.computed)


@pytest.mark.parametrize("as_ids", [False, True])
def test_a_completion_is_held_behind_its_prompt_whether_text_or_ids(as_ids: bool) -> None:
    text, said = model("says all"), AnswerSaid(" Paris.\n\nThe answer is:", stopped=False)
    prompt = "The capital of France is"
    whole = tokenizer().encode(prompt + said.text, add_special_tokens=False)
    asked = tokenizer().encode(prompt, add_special_tokens=False)
    numbers = [int.from_bytes(asked[at : at + TOKEN_BYTES], "little") for at in range(0, len(asked), TOKEN_BYTES)]
    given_: str | list[object] = [*numbers] if as_ids else prompt
    view = PromptView(prompt=given_)
    count = (len(whole) - len(asked)) // TOKEN_BYTES
    assert claimed(text, view, said, count) == whole[:-TOKEN_BYTES]


UNSAYABLE = ("\ufffd", "\ufdd0", "\ufdd1")
"""What no answer is believed with: bytes that are no text, and the marks that are set into templates."""
WORDS = st.lists(
    st.sampled_from(
        [
            "Paris",
            " is",
            " the",
            "\n",
            "\n\n",
            " ",
            "  ",
            "é",
            "日本",
            "🙏",
            "1",
            "23",
            ".",
            "<think>",
            "</think>",
            "x=",
        ]
    )
    | st.text(max_size=3),
    max_size=12,
).map("".join)
SAID = WORDS.filter(lambda text: "<|im_" not in text)


@given(
    name=st.sampled_from(sorted(TEMPLATES)),
    words=st.lists(SAID, min_size=1, max_size=5).filter(lambda words: len(words) % 2 == 1),
    answer=SAID,
    thoughts=SAID,
    stopped=st.booleans(),
    later=SAID,
)
@settings(max_examples=200, deadline=None)
def test_all_that_is_claimed_is_held_and_asked_for(
    name: str, words: list[str], answer: str, thoughts: str, stopped: bool, later: str
) -> None:
    text, view = model(name), user(*words)
    said = AnswerSaid(answer, "" if name in NO_THOUGHTS else thoughts, stopped)
    raw = f"{thoughts}\n</think>\n\n{answer}" if said.reasoning else answer
    if said.reasoning and "opened" not in name:
        raw = "<think>\n" + raw
    engine = sampled(text, view, raw, stopped=stopped)
    held = claimed_or_none(text, view, said, engine.count)
    if held is not None:
        assert engine.computed.startswith(held)
        assert asked_next(text, view, said, later).startswith(held)


def common(one: bytes, other: bytes) -> bytes:
    """The tokens in common, one by one."""
    end = 0
    while end < len(one) and one[end : end + TOKEN_BYTES] == other[end : end + TOKEN_BYTES]:
        end += TOKEN_BYTES
    return one[:end]


@given(words=SAID, answer=SAID, stopped=st.booleans(), later=SAID)
@settings(max_examples=100, deadline=None)
def test_all_that_is_held_and_asked_for_is_claimed(words: str, answer: str, stopped: bool, later: str) -> None:
    text, view, said = model("says all"), user(words), AnswerSaid(answer, stopped=stopped)
    engine, asked = sampled(text, view, answer, stopped=stopped), ids(text, text.prompt_of(view))
    in_common = common(engine.computed, asked_next(text, view, said, later))
    readable = not any(mark in answer for mark in UNSAYABLE)
    expected = in_common if readable and in_common.startswith(asked) and len(in_common) > len(asked) else None
    assert claimed_or_none(text, view, said, engine.count) == expected


def split(tokens: list[bytes], at: int) -> list[bytes]:
    """One token by its letters: what a model may sample that has not learned the tokenizer's habits."""
    place = at % len(tokens)
    letters = spelled(tokens[place])
    parts = [bytes(tokenizer().encode(letter, add_special_tokens=False)) for letter in letters]
    return [*tokens[:place], *(parts if "\ufffd" not in letters else [tokens[place]]), *tokens[place + 1 :]]


@functools.cache
def spelled(token: bytes) -> str:
    spelling: str = oracle().decode([int.from_bytes(token, "little")], skip_special_tokens=False)
    return spelling


@given(answer=SAID, at=st.integers(0, 50))
@settings(max_examples=100, deadline=None)
def test_tokens_that_no_tokenizer_would_have_chosen_are_never_claimed(answer: str, at: int) -> None:
    text, view = model("says all"), user("Hi")
    asked, engine = ids(text, text.prompt_of(view)), sampled(text, view, answer)
    new = engine.computed[len(asked) :]
    tokens = [new[start : start + TOKEN_BYTES] for start in range(0, len(new), TOKEN_BYTES)]
    other = split(tokens, at) if tokens else []
    computed = asked + b"".join(other)
    held = claimed_or_none(text, view, AnswerSaid(answer), len(b"".join(other)) // TOKEN_BYTES + 1)
    assert held is None or computed.startswith(held)
