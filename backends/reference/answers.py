"""Response bodies, in vLLM's shapes: whole answers, stream chunks, usage, errors."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from backends.reference.errors import RequestRefused
from backends.reference.types import Delta, FinishReason, Receipt

Json = dict[str, object]

DONE: Final = b"data: [DONE]\n\n"
FINGERPRINT: Final = "prefixgate-reference"


@dataclass(frozen=True, slots=True)
class Answer:
    """What every chunk of one answer repeats. `chat` chooses between the two dialects of the API."""

    id: str
    created: int
    model: str
    chat: bool
    prompt_tokens: tuple[int, ...] | None = None
    """The prompt's token ids when the client asked for token ids, else `None`."""

    @property
    def wants_token_ids(self) -> bool:
        """Whether the client asked for token ids."""
        return self.prompt_tokens is not None


def usage(receipt: Receipt, *, details: bool = True) -> Json:
    """The `usage` object; `cached_tokens` is always there, 0 when nothing was cached."""
    plain: Json = {
        "prompt_tokens": receipt.prompt_tokens,
        "total_tokens": receipt.prompt_tokens + receipt.completion_tokens,
        "completion_tokens": receipt.completion_tokens,
    }
    if details:
        plain["prompt_tokens_details"] = {
            "cached_tokens": receipt.cached_tokens,
            "created_cache_tokens": receipt.created_cache_tokens,
        }
    return plain | {"completion_tokens_details": None}


def whole(answer: Answer, text: str, token_ids: Sequence[int], last: Delta) -> Json:
    """The body of an answer that is not streamed; `last` is its last delta."""
    ids = list(token_ids) if answer.wants_token_ids else None
    ending: Json = {"logprobs": None, "finish_reason": last.finish, "stop_reason": last.stop_reason, "token_ids": ids}
    choice: Json
    if answer.chat:
        message = {"role": "assistant", "content": text, "refusal": None, "annotations": None, "audio": None}
        choice = {"index": 0, "message": message | {"function_call": None, "reasoning": None}, **ending}
    else:
        choice = {"index": 0, "text": text, **ending, "prompt_logprobs": None}
    return {
        "id": answer.id,
        "object": "chat.completion" if answer.chat else "text_completion",
        "created": answer.created,
        "model": answer.model,
        "choices": [choice],
        "service_tier": None,
        "system_fingerprint": FINGERPRINT,
        "usage": usage(last.receipt),
        "prompt_token_ids": answer.prompt_tokens,
        "kv_transfer_params": None,
    }


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


def role_chunk(answer: Answer, extra: Json) -> bytes:
    """The first event of a streamed chat answer."""
    choice: Json = {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
    return chunk(answer, [choice], extra | {"prompt_token_ids": answer.prompt_tokens})


def delta_chunk(answer: Answer, delta: Delta, extra: Json) -> bytes:
    """One event of a stream with new text, maybe the last with text."""
    choice: Json = {"index": 0}
    choice |= {"delta": {"content": delta.text}} if answer.chat else {"text": delta.text}
    choice |= {"logprobs": None, "finish_reason": delta.finish}
    if delta.finish is not None:
        choice["stop_reason"] = delta.stop_reason
    choice["token_ids"] = delta.token_ids if answer.wants_token_ids else None
    return chunk(answer, [choice], extra)


def usage_chunk(answer: Answer, receipt: Receipt) -> bytes:
    """The event with no choices that carries the usage, sent before the end when asked for."""
    return chunk(answer, [], {"usage": usage(receipt), "system_fingerprint": FINGERPRINT})


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
