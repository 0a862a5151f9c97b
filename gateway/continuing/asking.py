"""The request by which another endpoint goes on: the same prompt, and behind it the text that the client has got.

    chat          messages + {"role": "assistant", "content": text}, continue_final_message, no generation prompt
    completions   prompt + text; ids + ids of the text, where the engine told them
    limits        less by what was relayed; seed, sampling and all else as they were

The client's bytes stay as they came but for these fields, as in any request (`gateway/edge/splice.py`). Linear in the
body.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import msgspec

from gateway.continuing.types import CannotContinue, NotContinued, Said
from gateway.edge.json_spans import elements, members
from gateway.edge.splice import add_fields, cut_fields
from gateway.surrogates import UNREADABLE, decode
from gateway.types import InferenceRequest, Reason, Route
from prefix_index.prompt import Rendered

OPENAI_COMPLETION_TOKENS: Final = 16
"""Output of a completion whose client names no limit, as OpenAI has it and vLLM, SGLang and TensorRT-LLM do."""
_LIMITS: Final = ("max_tokens", "max_completion_tokens", "n_predict")
_CHAT_FIELDS: Final = frozenset({"continue_final_message", "add_generation_prompt"})
_GRAMMARS: Final = (
    *("guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs", "structural_tag"),
    *("regex", "ebnf", "json_schema", "grammar"),
)
_CALLS_BY_DEMAND: Final = ("auto", "none", None)
_SAID_NOTHING: Final = (None, False, 0)
_BLIND: Final = frozenset({Reason.ENGINE_ALTERS, Reason.PROMPT_BATCH, Reason.PREVIOUS_RESPONSE, Reason.NO_KV})

_fields: Final = msgspec.json.Decoder(dict[str, Any])


class LimitReached(Exception):
    """All the tokens that the client wants have been relayed: only the end is missing."""


def why_not(request: InferenceRequest, *, translated: bool) -> NotContinued | None:
    """Why a stream of this request could not be gone on with once it says something, so far as the request tells."""
    if not translated and request.route not in (Route.CHAT, Route.COMPLETIONS):
        return NotContinued.DIALECT
    if request.choices > 1:
        return NotContinued.SEVERAL_CHOICES
    return None


def continued(request: InferenceRequest, said: Said, relayed_tokens: int, usual_limit: int | None) -> InferenceRequest:
    """The request that asks for the rest. `relayed_tokens` are those of the text that the client has; `usual_limit` is
    the engine's where the client names none.

    Raises `CannotContinue`, or `LimitReached`.
    """
    if not said.text:
        return request
    fields = _fields_of(request)
    reason = _why_not_behind_text(request, fields)
    if reason is not None:
        raise CannotContinue(reason)
    limits = _limits(fields, relayed_tokens, usual_limit)
    limit = request.max_output_tokens
    left = None if limit is None else max(limit - relayed_tokens, 1)
    if request.route is Route.COMPLETIONS:
        return _completion(request, said, fields, limits, left)
    return _chat(request, said, fields, limits, left)


def reads_on(before: Rendered, after: Rendered, text: str) -> bool:
    """Whether a prompt is the one before and this text behind it, with nothing between but white space.

    It is not where a template opens a thought that it does not repeat before an answer: thoughts would pass for it.
    """
    *first, start = before.pieces or ("",)
    *second, end = after.pieces or ("",)
    if first != second or not isinstance(start, str) or not isinstance(end, str) or not end.startswith(start):
        return False
    rest = end[len(start) :]
    return rest.endswith(text) and not rest.removesuffix(text).strip()


def _fields_of(request: InferenceRequest) -> Mapping[str, Any]:
    if request.foreign is not None:
        return request.foreign.chat
    try:
        return decode(_fields, request.body)
    except UNREADABLE:
        raise CannotContinue(NotContinued.UNREADABLE) from None


def _why_not_behind_text(request: InferenceRequest, fields: Mapping[str, Any]) -> NotContinued | None:
    get = fields.get
    if any(get(name) not in _SAID_NOTHING for name in ("logprobs", "top_logprobs", "prompt_logprobs")):
        return NotContinued.LOGPROBS
    if request.route is Route.COMPLETIONS and type(get("logprobs")) is int:  # none but the token's own, for zero
        return NotContinued.LOGPROBS
    if get("use_beam_search"):
        return NotContinued.SEVERAL_CHOICES
    form = get("response_format")
    free = form is None or (isinstance(form, Mapping) and form.get("type") == "text")
    if not free or any(get(name) is not None for name in _GRAMMARS) or get("tool_choice") not in _CALLS_BY_DEMAND:
        return NotContinued.STRUCTURED_OUTPUT
    if request.blind in _BLIND or get("echo") or get("suffix"):
        return NotContinued.ENGINE_ALTERS
    return None


def _limits(fields: Mapping[str, Any], relayed_tokens: int, usual_limit: int | None) -> dict[str, int]:
    """The limits that the rest is under, by their names. Raises `LimitReached` where nothing is left of one."""
    said = {name: _number(fields.get(name)) for name in _LIMITS}
    given = {name: value for name, value in said.items() if value is not None and value >= 0}
    if not given and usual_limit is not None:
        given = {"max_tokens": usual_limit}
    left = {name: value - relayed_tokens for name, value in given.items()}
    if any(value <= 0 for value in left.values()):
        raise LimitReached
    least = _number(fields.get("min_tokens"))
    return left if least is None else {**left, "min_tokens": max(least - relayed_tokens, 0)}


def _number(value: object) -> int | None:
    """A limit as lax engines read it; None for what is none."""
    try:
        return None if value is None or isinstance(value, bool) else int(float(value))  # type: ignore[arg-type]  # of JSON
    except (ValueError, TypeError, OverflowError):
        return None


def _completion(
    request: InferenceRequest, said: Said, fields: Mapping[str, Any], limits: Mapping[str, int], left: int | None
) -> InferenceRequest:
    prompt = _prompt_and(fields.get("prompt"), said, stops=bool(fields.get("stop")))
    ours = {"prompt": msgspec.json.encode(prompt)} | {name: b"%d" % value for name, value in limits.items()}
    body = add_fields(cut_fields(request.body, frozenset(ours)), ours)
    view = replace(request.prompt, prompt=prompt)
    return replace(request, body=body, prompt=view, max_output_tokens=left)


def _prompt_and(prompt: object, said: Said, *, stops: bool) -> str | list[object]:
    """The prompt of a completion and the text behind it. What may be the beginning of a stop sequence is held back by
    engines, and its ids are not: then they are ahead of the text."""
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, str):
        return prompt + said.text
    if isinstance(prompt, list) and said.token_ids and not stops:
        return [*prompt, *said.token_ids]
    raise CannotContinue(NotContinued.TOKEN_IDS)


def _chat(
    request: InferenceRequest, said: Said, fields: Mapping[str, Any], limits: Mapping[str, int], left: int | None
) -> InferenceRequest:
    view = request.prompt
    messages, going_on = view.messages, view.continue_final_message
    if not messages or not (view.add_generation_prompt or going_on):
        raise CannotContinue(NotContinued.TEMPLATE)
    message: dict[str, object] = {"role": "assistant", "content": said.text}
    if going_on:
        message = _longer(messages[-1], said.text)
    kept = messages[:-1] if going_on else messages
    prompt = replace(view, messages=[*kept, message], continue_final_message=True, add_generation_prompt=False)
    foreign = request.foreign
    if foreign is not None:
        chat = {**fields, **limits, "messages": prompt.messages}
        chat |= {"continue_final_message": True, "add_generation_prompt": False}
        asked = replace(foreign, chat=chat)
        return replace(request, foreign=asked, prompt=prompt, max_output_tokens=left)
    ours = {name: b"%d" % value for name, value in limits.items()}
    body = cut_fields(_with_message(request.body, message, instead=going_on), _CHAT_FIELDS | ours.keys())
    body = add_fields(body, {"continue_final_message": b"true", "add_generation_prompt": b"false", **ours})
    return replace(request, body=body, prompt=prompt, max_output_tokens=left)


def _longer(message: Mapping[str, object], text: str) -> dict[str, object]:
    """A message that the client itself had gone on with, and the text behind it."""
    content = message.get("content")
    if isinstance(content, str):
        return {**message, "content": content + text}
    if isinstance(content, list) and content and isinstance(content[-1], dict):
        last = content[-1].get("text")
        if isinstance(last, str):
            return {**message, "content": [*content[:-1], {**content[-1], "text": last + text}]}
    raise CannotContinue(NotContinued.TEMPLATE)


def _with_message(body: bytes, message: Mapping[str, object], *, instead: bool) -> bytes:
    """The body with a message behind its others, or in place of the last; all else as it came."""
    text = body.decode()
    start = [one for one in members(text, 0) if one.key == "messages"][-1].value_start
    spans = list(elements(text, start))
    new = msgspec.json.encode(message)
    if instead:
        at, end = spans[-1]
        return text[:at].encode() + new + text[end:].encode()
    end = spans[-1][1]
    return text[:end].encode() + b"," + new + text[end:].encode()
