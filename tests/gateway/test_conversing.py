"""Whose answers are asked for again."""

from gateway.conversing import Conversing
from gateway.types import InferenceRequest, Route
from tests.gateway.next_turns import read

QUESTION = {"role": "user", "content": "And now?"}
ANSWER = {"role": "assistant", "content": "Now."}
ONE_QUESTION = [QUESTION]
SECOND_TURN = [QUESTION, ANSWER, QUESTION]


def chat(*messages: dict[str, str], model: str = "m") -> InferenceRequest:
    return read({"model": model, "messages": messages})


def learned_of(conversing: Conversing, request: InferenceRequest, times: int) -> int:
    """Of how many of so many equal requests the answers are learned from."""
    return sum(conversing.goes_on(request) for _ in range(times))


def test_who_never_comes_back_with_an_answer_has_some_hundreds_learned_from_and_then_none() -> None:
    conversing = Conversing()
    assert 200 < learned_of(conversing, chat(*ONE_QUESTION), 400) < 400
    assert learned_of(conversing, chat(*ONE_QUESTION), 1000) == 0


def test_a_conversation_that_goes_on_is_learned_from_at_each_turn_and_others_with_it() -> None:
    conversing = Conversing()
    learned_of(conversing, chat(*ONE_QUESTION), 1000)
    assert learned_of(conversing, chat(*SECOND_TURN), 3) == 3
    assert learned_of(conversing, chat(*ONE_QUESTION), 1000) > 20


def test_where_one_request_in_fifty_goes_on_all_are_learned_from() -> None:
    conversing = Conversing()
    learned = 0
    for _ in range(40):
        learned += learned_of(conversing, chat(*ONE_QUESTION), 49) + learned_of(conversing, chat(*SECOND_TURN), 1)
    assert learned > 0.7 * 2000


def test_models_are_told_apart_and_text_without_turns_is_learned_from() -> None:
    conversing = Conversing()
    learned_of(conversing, chat(*ONE_QUESTION), 1000)
    assert learned_of(conversing, chat(*ONE_QUESTION, model="other"), 1) == 1
    text = read({"prompt": "Once upon a time"}, Route.COMPLETIONS)
    assert learned_of(conversing, text, 1000) == 1000


def test_of_more_tenants_and_models_than_are_kept_the_oldest_begins_anew() -> None:
    conversing = Conversing()
    learned_of(conversing, chat(*ONE_QUESTION), 1000)
    for number in range(5000):
        conversing.goes_on(chat(*ONE_QUESTION, model=f"m{number}"))
    assert learned_of(conversing, chat(*ONE_QUESTION), 1) == 1
