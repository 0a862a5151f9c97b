"""Request bodies: JSON to typed values, and typed values to what the engine runs.

Fields this engine does not know are ignored, as vLLM ignores them. Fields it knows are checked: a wrong type or an
impossible value is a 400 that names the field. Messages stay dictionaries, because chat templates may read any key.
"""

import json
from typing import Annotated, TypeVar

import msgspec

from backends.reference.chat_template import Message
from backends.reference.errors import RequestRefused
from backends.reference.tokenizer import well_formed
from backends.reference.types import GenerationRequest, RequestId, SamplingParams

COMPLETION_MAX_TOKENS = 16
"""Output of /v1/completions when the client names no limit; OpenAI's default."""

MAX_SALT_CHARS = 128
SALT_FORBIDDEN = frozenset("@/\\\0")
"""vLLM refuses these in a salt; refusing them too shows early what would fail there."""


class StreamOptions(msgspec.Struct):
    """`stream_options`."""

    include_usage: bool = False
    continuous_usage_stats: bool = False


Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]


class KvTransferParams(msgspec.Struct, omit_defaults=True):
    """`kv_transfer_params`, as far as they are written and read here; see `apart`."""

    do_remote_decode: bool = False
    do_remote_prefill: bool = False
    remote_engine_id: str | None = None
    remote_request_id: str | None = None
    remote_host: str | None = None
    remote_port: Port | None = None
    remote_num_tokens: int | None = None
    remote_prefill_cached_tokens: int | None = None


class GenerationFields(msgspec.Struct, kw_only=True):
    """What chat and text completions share; defaults are vLLM's."""

    model: str | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    n: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    cache_salt: str | None = None
    return_token_ids: bool | None = None
    kv_transfer_params: KvTransferParams | None = None


class ChatBody(GenerationFields, kw_only=True):
    """Body of `POST /v1/chat/completions`, and of `POST /tokenize` for a chat."""

    messages: list[Message]
    tools: list[dict[str, object]] | None = None
    tool_choice: str | dict[str, object] | None = None
    documents: list[dict[str, object]] | None = None
    max_completion_tokens: int | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    add_special_tokens: bool = False
    chat_template_kwargs: dict[str, object] | None = None
    reasoning_effort: str | None = None


class CompletionBody(GenerationFields, kw_only=True):
    """Body of `POST /v1/completions`."""

    prompt: str | list[object]
    add_special_tokens: bool = True
    prompt_logprobs: int | None = None


class TokenizeBody(msgspec.Struct, kw_only=True):
    """Body of `POST /tokenize`: a prompt; or `messages`, and then the body is read again as a `ChatBody`."""

    model: str | None = None
    prompt: str | None = None
    messages: object = None
    add_special_tokens: bool = True
    return_token_strs: bool | None = None


class DetokenizeBody(msgspec.Struct, kw_only=True):
    """Body of `POST /detokenize`."""

    model: str | None = None
    tokens: list[int]


T = TypeVar("T")


def parse_body(raw: bytes, kind: type[T]) -> T:
    """The body as `kind`; raises `RequestRefused` (400) naming the field.

    Lone surrogates, which JSON can spell and UTF-8 cannot, become U+FFFD.
    """
    try:
        try:
            return msgspec.json.decode(raw, type=kind)
        except msgspec.ValidationError:
            raise
        except (msgspec.DecodeError, UnicodeDecodeError):
            # Python's own parser takes what vLLM takes: a byte order mark, and lone surrogates.
            plain = json.dumps(json.loads(raw), ensure_ascii=False)
            return msgspec.json.decode(well_formed(plain), type=kind)
    except msgspec.ValidationError as error:
        message = str(error)
        raise RequestRefused(message, param=_path_of(message), kind="Bad Request") from None
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise RequestRefused(f"the body is not valid JSON: {error}", kind="Bad Request") from None


def check_messages(body: ChatBody) -> None:
    """At least one message, each with a role, and an end that fits: a new answer, or the last message continued."""
    if not body.messages:
        raise RequestRefused("messages must not be empty", param="messages")
    for message in body.messages:
        if not isinstance(message.get("role"), str):
            raise RequestRefused("each message needs a role", param="messages")
    if body.continue_final_message and body.add_generation_prompt:
        raise RequestRefused(
            "continue_final_message needs add_generation_prompt to be false", param="continue_final_message"
        )


def scores_prompt(body: GenerationFields) -> bool:
    """Whether the probabilities of the prompt's tokens are asked for; raises `RequestRefused` (400) where it cannot be.

    Of a chat they are not told, and the field is one that this engine does not know.
    """
    asked = body.prompt_logprobs if isinstance(body, CompletionBody) else None
    _require(asked in (None, 0), "prompt_logprobs", "this engine tells the prompt's own tokens only: 0")
    _require(asked is None or not body.stream, "prompt_logprobs", "prompt_logprobs are not told in a stream")
    return asked is not None


def generation_request(
    body: GenerationFields, prompt: list[int], request_id: RequestId, max_model_len: int
) -> GenerationRequest:
    """What the engine runs for `body` with the tokens of its prompt; raises `RequestRefused` (400)."""
    if not prompt:
        raise RequestRefused("the prompt must not be empty", param="prompt")
    return GenerationRequest(
        request_id=request_id,
        prompt_tokens=tuple(prompt),
        sampling=_sampling(body, _output_limit(body, len(prompt), max_model_len)),
        cache_salt=_salt(body.cache_salt),
    )


def _output_limit(body: GenerationFields, prompt_tokens: int, max_model_len: int) -> int:
    too_long = f"This model's maximum context length is {max_model_len} tokens. However, "
    if prompt_tokens >= max_model_len:
        raise RequestRefused(
            f"{too_long}your prompt contains {prompt_tokens} input tokens and at least one output token is needed. "
            "Please reduce the length of the input prompt.",
            param="input_tokens",
        )
    room = max_model_len - prompt_tokens
    asked = body.max_tokens
    if isinstance(body, ChatBody) and body.max_completion_tokens is not None:
        asked = body.max_completion_tokens
    if asked is None:
        return min(COMPLETION_MAX_TOKENS, room) if isinstance(body, CompletionBody) else room
    if asked < 1:
        raise RequestRefused(f"max_tokens must be at least 1, got {asked}.", param="max_tokens")
    if asked > room:
        raise RequestRefused(
            f"{too_long}you requested {asked} output tokens and your prompt contains {prompt_tokens} input tokens, "
            f"for a total of {asked + prompt_tokens} tokens. Please reduce the length of the input prompt or the "
            "number of requested output tokens.",
            param="input_tokens",
        )
    return asked


def _sampling(body: GenerationFields, max_tokens: int) -> SamplingParams:
    temperature = 1.0 if body.temperature is None else body.temperature
    top_p = 1.0 if body.top_p is None else body.top_p
    top_k = 0 if body.top_k is None else body.top_k
    stop = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())
    _require(body.n in (None, 1), "n", "this engine makes one choice a request: n must be 1")
    _require(temperature >= 0, "temperature", f"temperature must not be negative, got {temperature}.")
    _require(0 < top_p <= 1, "top_p", f"top_p must be in (0, 1], got {top_p}.")
    _require(top_k >= -1, "top_k", f"top_k must be 0 or -1 (off) or at least 1, got {top_k}.")
    _require(all(stop), "stop", "stop cannot contain an empty string.")
    _require(body.seed is None or -(2**63) <= body.seed < 2**63, "seed", "seed must fit 64 bits")
    return SamplingParams(
        max_tokens=max_tokens,
        temperature=temperature,
        top_p=top_p,
        top_k=max(top_k, 0),
        seed=body.seed,
        stop=stop,
        stop_token_ids=tuple(body.stop_token_ids or ()),
        ignore_eos=body.ignore_eos,
    )


def _salt(salt: str | None) -> str:
    if salt is None:
        return ""
    allowed = 0 < len(salt) <= MAX_SALT_CHARS and SALT_FORBIDDEN.isdisjoint(salt)
    _require(
        allowed, "cache_salt", f"cache_salt must be 1 to {MAX_SALT_CHARS} characters other than '@', '/', '\\' and NUL."
    )
    return salt


def _require(fulfilled: bool, param: str, message: str) -> None:
    if not fulfilled:
        raise RequestRefused(message, param=param)


def _path_of(message: str) -> str:
    """The field a msgspec error is about: "... - at `$.max_tokens`" or "... required field `messages`"."""
    path = "body"
    *_, named = message.split("`")[1::2] or [""]
    if named.startswith("$"):
        path += named[1:]
    if "required field" in message:
        path += f".{message.split('`')[1]}"
    return path
