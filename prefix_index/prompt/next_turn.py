"""What an engine holds once it has answered, so far as the next turn of the conversation will ask for it.

    asked      ...<|im_start|>assistant\\n                               the prompt
    answered   ...<|im_start|>assistant\\nHello there                    prompt and what was sampled
    following  ...<|im_start|>assistant\\nHello there<|im_end|>...       what the template will make of it
               `----------- in common -------------'

Where a template drops what the model thought, or writes the answer in another way, the two part there: what lies beyond
is held and never asked for. Templates treat the last answer unlike those before it, so `following` has one more turn of
the user, made of the one character that no answer is believed with.

An engine tells text, not tokens, and a model may sample other tokens than a tokenizer makes of the text (two newlines
for one token of two). That the tokens are the same is believed where they are as many as the engine has sampled, the
one that ended the answer included, and all of the text can be read. Where thoughts were told apart from the text, what
stood around them is known from the template alone: their count is the proof of that too. What cannot be proven so does
not count as held. (As many other tokens, `blogs|uff` for `blog|suff`, would be believed wrongly, until the receipt of
the next turn corrects it. Models that learned their tokenizer's habits hardly sample so; of 51 readable answers of
random weights that had the right count, one did.)

Costs: two renders, and the tokens of the answer, which the next turn will find in the cache of segments.
"""

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from prefix_index.errors import NothingHeld
from prefix_index.prompt.model_text import ModelText
from prefix_index.prompt.types import PromptView, Rendered
from prefix_index.types import TOKEN_BYTES, TokenIds

_UNREADABLE: Final = "\N{REPLACEMENT CHARACTER}"
_THOUGHT, _SPOKEN = "\ufdd0", "\ufdd1"
"""Marks for where the two end in what the template writes: code points that are no characters, so no answer contains
them."""
_NEXT_USER: Final = {"role": "user", "content": _UNREADABLE}


class Unheld(StrEnum):
    """Why nothing of an answer counts as held: the kinds of `NothingHeld`."""

    UNREADABLE_TEXT = "unreadable_text"
    """A part of the text was no text: an answer that ends inside a character."""
    REASONING_DROPPED = "reasoning_dropped"
    """The template leaves out what the model thought before it spoke."""
    DIVERGED = "diverged"
    """The next turn parts from what is held no later than where the answer begins."""
    COUNT_DIFFERS = "count_differs"
    """The text has another number of tokens than the engine sampled, so it sampled others."""


@dataclass(frozen=True, slots=True)
class AnswerSaid:
    """What a model said, as the engine told it. `reasoning`: thoughts that were told apart from the text.

    `stopped`: the last token that was sampled ended the answer, and is no part of the text.
    """

    text: str = field(repr=False)
    reasoning: str = field(default="", repr=False)
    stopped: bool = True


@dataclass(frozen=True, slots=True)
class TurnTexts:
    """The three texts above; `following` is None for a plain prompt, behind which the next may say anything."""

    asked: Rendered
    answered: Rendered
    following: Rendered | None = None


def turn_texts(model: ModelText, view: PromptView, said: AnswerSaid) -> TurnTexts:
    """What was asked and answered, and what will be asked next. Linear in all of it; any thread.

    Raises `NothingHeld`, and what `ModelText.prompt_of` raises.
    """
    if any(mark in part for part in (said.text, said.reasoning) for mark in (_UNREADABLE, _THOUGHT, _SPOKEN)):
        raise NothingHeld(Unheld.UNREADABLE_TEXT)
    asked = model.prompt_of(view)
    if view.messages is None:
        return TurnTexts(asked, _followed_by(asked, said.text))
    following = model.prompt_of(_next_view(view, view.messages, said))
    written = said.text
    if said.reasoning:
        marked = replace(said, reasoning=said.reasoning + _THOUGHT, text=said.text + _SPOKEN)
        written = _written(asked, model.prompt_of(_next_view(view, view.messages, marked)), said)
    return TurnTexts(asked, _followed_by(asked, written), following)


def held_tokens(
    asked: TokenIds, answered: TokenIds, following: TokenIds | None, *, sampled_tokens: int, stopped: bool
) -> TokenIds:
    """The tokens that the next turn will ask for and that are held, at least one more than were `asked`. O(tokens).

    `sampled_tokens` is the engine's count of its output. The last of them was sampled and never computed, so it is not
    held. Raises `NothingHeld`.
    """
    if not answered.startswith(asked):
        raise NothingHeld(Unheld.DIVERGED)
    new_tokens = (len(answered) - len(asked)) // TOKEN_BYTES
    if new_tokens + stopped != sampled_tokens:
        raise NothingHeld(Unheld.COUNT_DIFFERS)
    held = answered[: len(asked) + TOKEN_BYTES * max(0, sampled_tokens - 1)]
    if following is not None:
        held = held[: _common_bytes(held, following)]
    if len(held) <= len(asked):
        raise NothingHeld(Unheld.DIVERGED)
    return TokenIds(held)


def _next_view(view: PromptView, messages: list[dict[str, object]], said: AnswerSaid) -> PromptView:
    """The next request: with the answer as a client sends it back, and another turn of the user."""
    last = messages[-1] if messages else {}
    begun = last.get("content")
    if view.continue_final_message and isinstance(begun, str):  # who had a message continued sends it as one
        messages, answer = messages[:-1], {**last, "content": begun + said.text}
    else:
        answer = {"role": "assistant", "content": said.text}
    if said.reasoning:
        answer |= {"reasoning": said.reasoning, "reasoning_content": said.reasoning}
    return replace(view, messages=[*messages, answer, dict(_NEXT_USER)], continue_final_message=False)


def _written(asked: Rendered, marked: Rendered, said: AnswerSaid) -> str:
    """Thoughts and text with what the template writes around them, from the end of the prompt on."""
    *before, last = asked.pieces
    *same, rest = marked.pieces
    if before != same or not isinstance(last, str) or not isinstance(rest, str) or not rest.startswith(last):
        raise NothingHeld(Unheld.DIVERGED)
    thoughts, shown, behind = rest[len(last) :].partition(_THOUGHT)
    if not shown:
        raise NothingHeld(Unheld.REASONING_DROPPED)
    text, spoken, _ = behind.partition(_SPOKEN)
    if not spoken:
        raise NothingHeld(Unheld.DIVERGED)
    return thoughts + text if said.text else thoughts


def _followed_by(prompt: Rendered, text: str) -> Rendered:
    """A prompt that goes on with `text`, in one piece with its own last text."""
    *before, last = prompt.pieces or ("",)
    return replace(prompt, pieces=(*before, last + text) if isinstance(last, str) else (*before, last, text))


def _common_bytes(one: bytes, other: bytes) -> int:
    """The length of the common beginning, in whole tokens. O(length): each half is compared once."""
    start, end = 0, min(len(one), len(other)) // TOKEN_BYTES
    if one[: end * TOKEN_BYTES] == other[: end * TOKEN_BYTES]:
        return end * TOKEN_BYTES
    while end - start > 1:  # equal before start, different before end
        middle = (start + end) // 2
        equal = one[start * TOKEN_BYTES : middle * TOKEN_BYTES] == other[start * TOKEN_BYTES : middle * TOKEN_BYTES]
        start, end = (middle, end) if equal else (start, middle)
    return start * TOKEN_BYTES
