"""How each engine is asked for the token ids of a prompt, and where its answer has them. Pure.

    MESSAGES    POST /tokenize {"messages" or "prompt"}                     {"tokens": [1, 2]}
    TEXT_ONLY   the same of a text, at the engine's own path                {"tokens": [1, 2]}
    INPUTS      POST /tokenize {"inputs"}                                   [{"id": 1}, {"id": 2}]
                POST /chat_tokenize, a chat                                 {"tokenize_response": [{"id": 1}, ...]}
    TEMPLATE    POST /apply-template, a chat                                {"prompt": "..."}, which is then asked as
                POST /tokenize {"content"}                                  {"tokens": [1, 2]}

llama.cpp puts its special tokens around every text, whatever a client says, and reads those that stand in it; where its
template has written the first one already, it drops the second.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

import msgspec

from backends import EndpointFacts, TokenizeForm
from prefix_index.prompt import PromptView, has_media

KiB: Final = 1024
MiB: Final = 1024 * KiB
TEMPLATE_TOKENS: Final = 64 * KiB
"""What a chat template may add to the text of a prompt."""
MOST_TOKENS: Final = MiB
"""No tokenizer makes more of a text within the deadline, and few models take as many."""
BYTES_PER_TOKEN: Final = 16
"""Of an answer, at most: engines write an id of six digits, a comma, maybe a space."""
BYTES_PER_ITEM: Final = 72
"""Of an answer that tells of each token its text and place too; of the text six bytes, since all may be escaped."""
BYTES_PER_BYTE: Final = 6
"""Of a text written as JSON: what must be escaped becomes six."""


class Answer(Enum):
    """What is answered, by where the ids are."""

    TOKENS = auto()
    ITEMS = auto()
    CHAT_ITEMS = auto()
    TEXT = auto()
    """No ids yet: the text of a chat, to be asked with `of_text`."""


@dataclass(frozen=True, slots=True)
class Question:
    """What to post, and how to read what comes back."""

    path: str
    body: bytes
    answer: Answer

    @property
    def most_bytes(self) -> int:
        """The longest answer: no tokenizer makes more tokens than there are bytes."""
        tokens = min(MOST_TOKENS, len(self.body) + TEMPLATE_TOKENS)
        match self.answer:
            case Answer.TOKENS:
                return BYTES_PER_TOKEN * tokens
            case Answer.TEXT:
                return BYTES_PER_BYTE * tokens
        return BYTES_PER_ITEM * tokens


def question_of(facts: EndpointFacts, model: str, prompt: PromptView) -> Question | None:
    """What to ask an endpoint; None for prompts it does not take: none knows documents, and pictures they would fetch
    and compute."""
    if prompt.messages is None:
        if not isinstance(prompt.prompt, str):
            return None
        return _of_completion(facts, model, prompt, prompt.prompt)
    if prompt.documents or has_media(prompt):
        return None
    match facts.tokenize:
        case TokenizeForm.MESSAGES:
            return Question(facts.tokenize_path, msgspec.json.encode(_chat(model, prompt)), Answer.TOKENS)
        case TokenizeForm.INPUTS:
            chat = {name: value for name, value in _chat(model, prompt).items() if name in _TGI_FIELDS}
            return Question("/chat_tokenize", msgspec.json.encode(chat), Answer.CHAT_ITEMS)
        case TokenizeForm.TEMPLATE:
            return Question("/apply-template", msgspec.json.encode(_chat(model, prompt)), Answer.TEXT)
    return None


def of_text(model: str, text: str) -> Question:
    """The second question to an engine that answered the first with the text of a chat.

    The model is named for a llama.cpp that serves several, and sends each question to one of them.
    """
    body = {"model": model, "content": text, "add_special": True, "parse_special": True}
    return Question("/tokenize", msgspec.json.encode(body), Answer.TOKENS)


class _Tokens(msgspec.Struct):
    tokens: list[int]


class _Item(msgspec.Struct):
    id: int


class _ChatItems(msgspec.Struct):
    tokenize_response: list[_Item]


class _Text(msgspec.Struct):
    prompt: str


DECODERS: Final = {
    Answer.TOKENS: msgspec.json.Decoder[object](_Tokens),
    Answer.ITEMS: msgspec.json.Decoder[object](list[_Item]),
    Answer.CHAT_ITEMS: msgspec.json.Decoder[object](_ChatItems),
    Answer.TEXT: msgspec.json.Decoder[object](_Text),
}


def ids_or_text(decoded: object) -> Sequence[int] | str:
    """What an answer says, as its decoder has read it."""
    match decoded:
        case _Tokens(tokens=tokens):
            return tokens
        case _ChatItems(tokenize_response=items):
            return [item.id for item in items]
        case _Text(prompt=text):
            return text
        case list():
            return [item.id for item in decoded]
    raise AssertionError("every decoder gives one of these")


_TGI_FIELDS: Final = frozenset({"model", "messages", "tools"})


def _of_completion(facts: EndpointFacts, model: str, prompt: PromptView, text: str) -> Question | None:
    match facts.tokenize:
        case TokenizeForm.MESSAGES:
            body = {"model": model, "prompt": text, "add_special_tokens": prompt.add_special_tokens}
            return Question(facts.tokenize_path, msgspec.json.encode(body), Answer.TOKENS)
        case TokenizeForm.TEXT_ONLY:
            return Question(facts.tokenize_path, msgspec.json.encode({"prompt": text}), Answer.TOKENS)
        case TokenizeForm.INPUTS:
            body = {"inputs": text, "add_special_tokens": prompt.add_special_tokens}
            return Question("/tokenize", msgspec.json.encode(body), Answer.ITEMS)
        case TokenizeForm.TEMPLATE:
            return of_text(model, text)
    return None


def _chat(model: str, prompt: PromptView) -> dict[str, object]:
    """In vLLM's and SGLang's form, of which llama.cpp knows a part."""
    content: dict[str, object] = {
        "model": model,
        "messages": prompt.messages,
        "add_generation_prompt": prompt.add_generation_prompt,
        "continue_final_message": prompt.continue_final_message,
        "add_special_tokens": prompt.add_special_tokens,
    }
    if prompt.tools is not None:
        content["tools"] = prompt.tools
    if (arguments := _template_arguments(prompt)) is not None:
        content["chat_template_kwargs"] = arguments
    if prompt.reasoning_effort is not None:
        content["reasoning_effort"] = prompt.reasoning_effort
    return content


def _template_arguments(prompt: PromptView) -> dict[str, object] | None:
    """Variables of the template; the effort of reasoning among them, since vLLM's /tokenize knows it only so."""
    effort = prompt.reasoning_effort
    if effort is None:
        return dict(prompt.template_kwargs) or None
    said = {"reasoning_effort": effort, "enable_thinking": effort != "none"}
    return {**said, **prompt.template_kwargs, "reasoning_effort": effort}
