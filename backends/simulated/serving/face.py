"""A face: what differs between engines as their clients see them, as data and functions.

A face holds no state and does no I/O. What a server knows of itself is its `Site`.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from backends.simulated.serving.adapters import Adapters
from backends.simulated.serving.errors import Refused
from backends.simulated.serving.faults import Faults
from backends.simulated.serving.reading import Fields
from backends.simulated.serving.runner import Runner
from backends.simulated.serving.types import Json, Prompt, ServerSpec, Tally, Wanted
from backends.simulated.serving.words import Vocabulary
from backends.simulated.types import EngineSpec

if TYPE_CHECKING:
    from backends.simulated.serving.split import Channel, Depot, Leg
    from backends.simulated.serving.split.bootstrap import Rooms


class Site(Protocol):
    """What a face may know of the server that wears it."""

    spec: ServerSpec
    version: str
    runner: Runner
    vocabulary: Vocabulary
    adapters: Adapters
    faults: Faults
    created: int
    started_at_s: float
    instance: str
    channel: "Channel"
    depot: "Depot"
    rooms: "Rooms"


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer that is no stream. `body`: JSON, or text, or nothing."""

    body: object = None
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()


class Moment(StrEnum):
    """Where usage stands."""

    RUNNING = "running"
    """On a chunk of a stream that is not the last."""
    LAST = "last"
    WHOLE = "whole"


@dataclass(frozen=True, slots=True)
class Shape:
    """Bodies of answers, as far as they have more than the usual.

    Chunks: `role` is the delta before all tokens, None where there is no such chunk, `first_top` what that one has at
    its top, `usage_top` what the last one has. `ends_alone`: the reason of the end comes in a chunk of its own, whose
    delta is `end_delta`. `delta`: of each delta; `choice`, `top`: of each choice and chunk; `token`, `end`: of choices
    with a token, with the end. `pad`: stands behind the first event's line. Whole answers: `message`, `whole_choice`,
    `whole`, and of completions `text_choice`, `text_whole`; `text_chunk`: of their choices in chunks.
    """

    role: Json | None = field(default_factory=lambda: Json(role="assistant", content=""))
    ends_alone: bool = False
    delta: Json = field(default_factory=dict)
    end_delta: Json = field(default_factory=dict)
    choice: Json = field(default_factory=dict)
    top: Json = field(default_factory=dict)
    first_top: Json = field(default_factory=dict)
    usage_top: Json = field(default_factory=dict)
    token: Json = field(default_factory=dict)
    end: Json = field(default_factory=dict)
    message: Json = field(default_factory=dict)
    whole_choice: Json = field(default_factory=dict)
    whole: Json = field(default_factory=dict)
    text_chunk: Json = field(default_factory=dict)
    text_choice: Json = field(default_factory=dict)
    text_whole: Json = field(default_factory=dict)
    usage_null: bool = False
    pad: str = ""
    done: bool = True


Page = Callable[[Site], Reply]
Post = Callable[[Site, bytes], Awaitable[Reply]]
UsageOf = Callable[[Site, Sequence[Tally], Moment], Json]


def plain_usage(site: Site, tallies: Sequence[Tally], moment: Moment) -> Json:
    """Three sums; the prompt counts once for each of them."""
    prompt_tokens = sum(one.prompt_tokens for one in tallies)
    output_tokens = sum(one.output_tokens for one in tallies)
    return {
        "prompt_tokens": prompt_tokens,
        "total_tokens": prompt_tokens + output_tokens,
        "completion_tokens": output_tokens,
    }


def nothing_beside(site: Site, tallies: Sequence[Tally]) -> Json:
    """For engines whose last chunk and whole answer have nothing beside usage."""
    return {}


def nested_error(refused: Refused) -> Json:
    """`{"error": {message, type, param, code}}`."""
    error: Json = {
        "message": refused.message,
        "type": refused.kind,
        "param": refused.param,
        "code": refused.status,
        **refused.more,
    }
    return {"error": error}


def flat_error(refused: Refused) -> Json:
    """`{"object": "error", message, type, param, code}`."""
    return {
        "object": "error",
        "message": refused.message,
        "type": refused.kind,
        "param": refused.param,
        "code": refused.status,
    }


def nothing_more(site: Site, fields: Fields, headers: Mapping[str, str]) -> None:
    """For engines that check no more than all do."""


def adapter_by_model(site: Site, fields: Fields) -> str | None:
    """The adapter is the model that is asked for."""
    model = fields.text("model")
    return model if model in site.adapters.known else None


def detail(status: int) -> Reply:
    """What FastAPI says of a path that is not there."""
    return Reply({"detail": "Not Found" if status == 404 else "Method Not Allowed"}, status)


def same_name(model: str) -> str:
    """Names are what they are."""
    return model


def never_open(fields: Fields) -> bool:
    """For engines that never go on with the last message."""
    return False


def too_long(site: Site, prompt_tokens: int, asked_tokens: int) -> Refused:
    """vLLM's words for a prompt that does not fit."""
    most = site.spec.max_model_len
    return Refused(
        400,
        f"This model's maximum context length is {most} tokens. However, you requested {asked_tokens} output tokens "
        f"and your prompt contains at least {prompt_tokens} input tokens, for a total of at least "
        f"{prompt_tokens + asked_tokens} tokens. Please reduce the length of the input prompt or the number of "
        f"requested output tokens. (parameter=input_tokens, value={prompt_tokens})",
        param="input_tokens",
    )


@dataclass(frozen=True, slots=True)
class Face:
    """How one engine looks.

    `engine`: what is usual there; `has_slots`: it remembers sequences, not blocks. `pages` are answered to GET, `posts`
    to POST, `chat` and `completions` are the paths that generate; `no_route`: for a path that is not there, given 404
    or 405. `invalid_status` and `invalid_kind`: of a body that makes no sense; `is_lax`: see `Fields`;
    `needs_json_type`: bodies of another type are refused. `chat_fields`, `completion_fields`: the only ones there may
    be, where unknown ones are refused. `tells_token_ids`: where `return_token_ids` asks for it. `check`: refuses what
    else the engine refuses. `knows_models`: an unknown one is refused. `beside`: what stands beside `usage`.
    `too_long`: None cuts the prompt. `adapter`: the one that a request asks for. `model_key`: equal for names of one
    model. `overload`: None is a queue without a bound. `is_open`: whether the chat's last message goes on.
    `completion_tokens`: output of a completion that names no limit. `guarded`: path beginnings that need the key.
    `json_type`: of JSON answers. `default_usage`: whether usage is streamed without being asked for in so many words.
    `rank_header` and, where that is missing, `rank_field` of the body choose a data-parallel rank. `bare_ids`: answers
    are called by the request's id alone, without the kind of answer before it.
    `leg`: this engine's part of a request, where prompts and answers may be computed apart; `hand_over`: what its side
    channel answers, and how.
    """

    name: str
    version: str
    pages: Mapping[str, Page]
    error: Callable[[Refused], Json]
    engine: EngineSpec = field(default_factory=EngineSpec)
    has_slots: bool = False
    posts: Mapping[str, Post] = field(default_factory=dict)
    chat: str = "/v1/chat/completions"
    completions: str | None = "/v1/completions"
    headers: tuple[tuple[str, str], ...] = (("server", "uvicorn"),)
    invalid_status: int = 400
    invalid_kind: str = "BadRequestError"
    chat_fields: frozenset[str] | None = None
    completion_fields: frozenset[str] | None = None
    check: Callable[[Site, Fields, Mapping[str, str]], None] = nothing_more
    knows_models: bool = True
    usage: UsageOf = plain_usage
    beside: Callable[[Site, Sequence[Tally]], Json] = nothing_beside
    shape: Shape = field(default_factory=Shape)
    overload: Refused | None = None
    too_long: Callable[[Site, int, int], Refused] | None = too_long
    adapter: Callable[[Site, Fields], str | None] = adapter_by_model
    model_key: Callable[[str], str] = same_name
    is_open: Callable[[Fields], bool] = never_open
    salted: bool = False
    completion_tokens: int | None = 16
    rank_header: str | None = None
    rank_field: str | None = None
    bare_ids: bool = False
    guarded: tuple[str, ...] = ("/v1",)
    unauthorized: Json = field(default_factory=lambda: {"error": "Unauthorized"})
    json_type: str = "application/json"
    request_id_header: bool = False
    no_route: Callable[[int], Reply] = detail
    is_lax: bool = True
    tells_token_ids: bool = False
    needs_json_type: bool = False
    default_usage: Callable[[Fields], bool] = never_open
    leg: "Callable[[Site, Wanted, Prompt], Leg] | None" = None
    hand_over: "tuple[str, Callable[[Site, Json], Awaitable[Json]]] | None" = None
