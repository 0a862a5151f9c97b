"""Whether an answer that is gone on with stands behind the prompt as the first engine read it."""

from dataclasses import replace

import pytest

from gateway.continuing import reads_on
from prefix_index import TemplateFailed
from prefix_index.prompt import PromptView
from tests.prefix_index.test_prompt_next_turn import TEMPLATES, model

ASKED = PromptView(messages=[{"role": "user", "content": "Where are the books?"}])
GOES_ON = {"says all", "trims", "has no marks"}
REFUSES = {"keeps thoughts alone", "drops all answers"}


def goes_on(name: str, text: str, asked: PromptView = ASKED) -> bool:
    assert asked.messages is not None
    said: list[dict[str, object]] = [*asked.messages, {"role": "assistant", "content": text}]
    view = replace(asked, messages=said, continue_final_message=True, add_generation_prompt=False)
    return reads_on(model(name).prompt_of(asked), model(name).prompt_of(view), text)


@pytest.mark.parametrize("name", sorted(TEMPLATES.keys() - REFUSES))
def test_thoughts_that_a_template_opens_are_not_gone_on_with_as_an_answer(name: str) -> None:
    assert goes_on(name, "Okay, they") == (name in GOES_ON)


@pytest.mark.parametrize("name", sorted(REFUSES))
def test_a_template_that_leaves_the_answer_out_says_so(name: str) -> None:
    with pytest.raises(TemplateFailed):
        goes_on(name, "Okay, they")


@pytest.mark.parametrize(("text", "goes"), [("They are ", False), (" They are", False), ("They\n\nare", True)])
def test_white_space_that_a_template_takes_away_is_missed(text: str, goes: bool) -> None:
    assert goes_on("trims", text) == goes
    assert goes_on("says all", text)


def test_a_text_that_the_client_began_is_gone_on_with_behind_it() -> None:
    assert ASKED.messages is not None
    begun: list[dict[str, object]] = [*ASKED.messages, {"role": "assistant", "content": "The"}]
    asked = replace(ASKED, messages=begun, continue_final_message=True, add_generation_prompt=False)
    longer = replace(asked, messages=[*begun[:-1], {"role": "assistant", "content": "The books"}])
    text = model("says all")
    assert reads_on(text.prompt_of(asked), text.prompt_of(longer), " books")
    assert not reads_on(text.prompt_of(asked), text.prompt_of(longer), "books are")
