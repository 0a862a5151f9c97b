"""Response bodies, in vLLM's shapes: whole answers, stream chunks, usage, errors."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec

from backends.reference.errors import RequestRefused
from backends.reference.tool_calls import ForcedCall
from backends.reference.types import Delta, FinishReason, Receipt
from backends.reference.wire import KvTransferParams

Json = dict[str, object]

DONE: Final = b"data: [DONE]\n\n"
FINGERPRINT: Final = "prefixgate-reference"


@dataclass(frozen=True, slots=True)
class Answer:
    """What every chunk of one answer repeats. `chat` chooses between the two dialects of the API.

    `prompts` are the prompts' token ids, one of each choice, where the client asked for token ids. `call` is the tool
    call that the answer consists of, where the client forced one. `cached_tokens`: what the engine that computed
    the prompt had cached of it, where that was another one. `scores`, where the client asked for them, are the tokens
    of each prompt but the first with ln of their probability.
    """

    id: str
    created: int
    model: str
    chat: bool
    prompts: Sequence[tuple[int, ...]] | None = None
    call: ForcedCall | None = None
    cached_tokens: int | None = None
    scores: Sequence[Sequence[tuple[int, float]]] | None = None

    def told(self, receipt: Receipt) -> Receipt:
        """A receipt as the client is told it."""
        return receipt if self.cached_tokens is None else replace(receipt, cached_tokens=self.cached_tokens)


@dataclass(frozen=True, slots=True)
class Choice:
    """One answer text in the making: its deltas so far."""

    deltas: list[Delta] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(delta.text for delta in self.deltas)

    @property
    def token_ids(self) -> list[int]:
        """The token ids so far."""
        return [token for delta in self.deltas for token in delta.token_ids]


def usage(receipts: Iterable[Receipt], *, details: bool = True) -> Json:
    """The `usage` object, summed over choices; `cached_tokens` is always there, 0 when nothing was cached.

    Without `details` it is that of an answer under way: what becomes of its drafts is not known yet.
    """
    all_of = list(receipts)
    prompt_tokens = sum(one.prompt_tokens for one in all_of)
    completion_tokens = sum(one.completion_tokens for one in all_of)
    plain: Json = {
        "prompt_tokens": prompt_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "completion_tokens": completion_tokens,
    }
    if details:
        plain["prompt_tokens_details"] = {
            "cached_tokens": sum(one.cached_tokens for one in all_of),
            "created_cache_tokens": sum(one.created_cache_tokens for one in all_of),
        }
    return plain | {"completion_tokens_details": _predicted(all_of) if details else None}


def _predicted(receipts: Sequence[Receipt]) -> Json | None:
    """What became of drafted tokens, in OpenAI's words; None where nobody drafted. They are not output twice: those
    that were rejected are in no other count."""
    drafted = [one for one in receipts if one.drafted_tokens is not None]
    if not drafted:
        return None
    accepted = sum(one.accepted_tokens or 0 for one in drafted)
    rejected = sum(one.drafted_tokens or 0 for one in drafted) - accepted
    return {"accepted_prediction_tokens": accepted, "rejected_prediction_tokens": rejected}


def whole(answer: Answer, choices: Sequence[Choice], handed: KvTransferParams | None = None) -> Json:
    """The body of an answer that is not streamed; `handed` is what another engine may go on with."""
    return {
        "id": answer.id,
        "object": "chat.completion" if answer.chat else "text_completion",
        "created": answer.created,
        "model": answer.model,
        "choices": [_whole_choice(answer, index, choice) for index, choice in enumerate(choices)],
        "service_tier": None,
        "system_fingerprint": FINGERPRINT,
        "usage": usage(answer.told(choice.deltas[-1].receipt) for choice in choices),
        "prompt_token_ids": _first_prompt(answer) if answer.chat else None,
        "kv_transfer_params": handed,
    }


def _whole_choice(answer: Answer, index: int, choice: Choice) -> Json:
    last = choice.deltas[-1]
    ending: Json = {
        "logprobs": None,
        "finish_reason": _finish_reason(answer, last),
        "stop_reason": last.stop_reason,
        "token_ids": None if answer.prompts is None else choice.token_ids,
    }
    if not answer.chat:
        prompt = None if answer.prompts is None else answer.prompts[index]
        told: Json = {"prompt_logprobs": _prompt_logprobs(answer, index), "prompt_token_ids": prompt}
        return {"index": index, "text": choice.text, **ending, **told}
    message: Json = {"role": "assistant", "content": choice.text, "refusal": None, "annotations": None, "audio": None}
    if (call := answer.call) is not None:
        arguments = call.opening + call.fragment(choice.text) + call.closing(last)
        function = {"name": call.name, "arguments": arguments}
        message |= {"content": "", "tool_calls": [{"id": call.id, "type": "function", "function": function}]}
    return {"index": index, "message": message | {"function_call": None, "reasoning": None}, **ending}


def _prompt_logprobs(answer: Answer, index: int) -> list[Json | None] | None:
    """As vLLM has it: an object of the token's id for each, null for the first."""
    if answer.scores is None:
        return None
    told: list[Json | None] = [{str(token): {"logprob": score}} for token, score in answer.scores[index]]
    return [None, *told]


def _finish_reason(answer: Answer, delta: Delta) -> str | None:
    if answer.call is None or delta.finish is None:
        return delta.finish
    return answer.call.finish(delta)


def chunk(answer: Answer, choices: list[Json], extra: Json | None = None) -> bytes:
    """One event of a stream."""
    head: Json = {
        "id": answer.id,
        "object": "chat.completion.chunk" if answer.chat else "text_completion",
        "created": answer.created,
        "model": answer.model,
        "choices": choices,
    }
    return event(head | (extra or {}))


def first_chunks(answer: Answer, extra: Json) -> Iterator[bytes]:
    """The events of a streamed chat answer before its first token: the role, and the beginning of a forced call."""
    yield _chat_chunk(answer, {"role": "assistant", "content": ""}, extra | {"prompt_token_ids": _first_prompt(answer)})
    if (call := answer.call) is not None:
        head: Json = {"index": 0, "id": call.id, "type": "function", "function": {"name": call.name}}
        yield _chat_chunk(answer, {"content": None, "tool_calls": [head]}, extra)
        yield _chat_chunk(answer, _arguments(call.opening), extra)


def delta_chunk(answer: Answer, index: int, delta: Delta, extra: Json) -> bytes:
    """One event of a stream with news of a choice, maybe its last."""
    choice: Json = {"index": index}
    if (call := answer.call) is not None:
        closing = "" if delta.finish is None else call.closing(delta)
        choice["delta"] = _arguments(call.fragment(delta.text) + closing)
    elif answer.chat:
        choice["delta"] = {"content": delta.text}
    else:
        choice["text"] = delta.text
    choice |= {"logprobs": None, "finish_reason": _finish_reason(answer, delta)}
    if delta.finish is not None:
        choice["stop_reason"] = delta.stop_reason
    choice["token_ids"] = None if answer.prompts is None else delta.token_ids
    return chunk(answer, [choice], extra)


def usage_chunk(answer: Answer, receipts: Iterable[Receipt]) -> bytes:
    """The event with no choices that carries the usage of all of them, sent before the end when asked for."""
    return chunk(answer, [], {"usage": usage(map(answer.told, receipts)), "system_fingerprint": FINGERPRINT})


def _chat_chunk(answer: Answer, delta: Json, extra: Json) -> bytes:
    return chunk(answer, [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}], extra)


def _arguments(fragment: str) -> Json:
    return {"content": None, "tool_calls": [{"index": 0, "function": {"arguments": fragment}}]}


def _first_prompt(answer: Answer) -> tuple[int, ...] | None:
    return None if answer.prompts is None else answer.prompts[0]


def event(body: Json) -> bytes:
    """One server-sent event."""
    return b"data: " + msgspec.json.encode(body) + b"\n\n"


def error_body(message: str, kind: str, code: int, param: str | None = None) -> Json:
    """OpenAI's nested error object."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def refusal_body(refused: RequestRefused) -> Json:
    """The error object of a refused request."""
    return error_body(refused.message, refused.kind, refused.status, refused.param)


def interrupted_body(finish: FinishReason | None) -> Json:
    """The error object of an answer the engine could not finish."""
    return error_body(f"the engine ended the request: {finish}", "InternalServerError", 500)
