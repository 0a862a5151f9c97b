"""The OpenAI dialect of the client side: bytes of a body become an `InferenceRequest`.

Only what the gateway itself needs is looked at; everything else is the engine's to judge and passes unread. The views
are typed, so a wrong type is answered with the path of the field and never with its content.
"""

from datetime import datetime
from typing import Annotated, Any

import msgspec

from gateway.edge.splice import add_fields, cut_fields, put_in_object
from gateway.errors import BadRequest
from gateway.types import Headers, InferenceRequest, RequestId, Route, Tenant
from prefix_index.prompt import PromptView

ENGINE_CONTROL_FIELDS = frozenset(
    {
        "bootstrap_host",
        "bootstrap_port",
        "bootstrap_room",
        "cache_salt",
        "data_parallel_rank",
        "disagg_prefill_dp_rank",
        "ec_transfer_params",
        "extra_key",
        "id_slot",
        "kv_transfer_params",
        "priority",
        "request_id",
        "rid",
        "routed_dp_rank",
        "session_params",
        "vllm_xargs",
    }
)
"""Body fields that steer an engine's cache, scheduler or placement: the gateway's to set, taken out of a client's
request. The stated exception to byte fidelity."""

ENGINE_CONTROL_HEADERS = frozenset(
    {
        b"x-data-parallel-rank",
        b"x-request-id",
        b"x-session-id",
        b"x-smg-routing-key",
        b"x-vllm-priority",
        b"endpoint-load-metrics-format",
    }
)
_OVERRIDE_HEADERS = b"x-override-"

NonNegative = Annotated[int, msgspec.Meta(ge=0)]

LONGEST_OUTPUT_TOKENS = (1 << 31) - 1
"""What a client's limit weighs as load at most: it may have hundreds of digits, and engines judge it anyway."""


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class _Common(msgspec.Struct):
    model: str
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    max_tokens: NonNegative | None = None
    max_completion_tokens: NonNegative | None = None


class _Chat(_Common, kw_only=True):
    messages: list[dict[str, Any]]
    tools: list[Any] | None = None
    documents: list[Any] | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    add_special_tokens: bool = False
    chat_template_kwargs: dict[str, Any] | None = None
    reasoning_effort: str | None = None


class _Completion(_Common, kw_only=True):
    prompt: str | list[Any]
    add_special_tokens: bool = True


_chat = msgspec.json.Decoder(_Chat)
_completion = msgspec.json.Decoder(_Completion)
_keys = msgspec.json.Decoder(dict[str, msgspec.Raw])


def read_request(  # noqa: PLR0913 - the six facts of an arrival and its body
    route: Route,
    body: bytes,
    *,
    id: RequestId,
    tenant: Tenant,
    path: str,
    headers: Headers,
    started_s: float,
    opened_at: datetime,
) -> InferenceRequest:
    """Parse a body. Raises `BadRequest` with the place and kind of the fault, never with content. O(body)."""
    view = _decode(route, body)
    limit = view.max_tokens if view.max_completion_tokens is None else view.max_completion_tokens
    return InferenceRequest(
        id=id,
        tenant=tenant,
        route=route,
        path=path,
        model=view.model,
        stream=bool(view.stream),
        client_wants_usage=bool(view.stream_options and view.stream_options.include_usage),
        max_output_tokens=None if limit is None else min(limit, LONGEST_OUTPUT_TOKENS),
        prompt=_prompt(view),
        body=body,
        headers=headers,
        started_s=started_s,
        opened_at=opened_at,
    )


def upstream_body(request: InferenceRequest, *, inject_salt: bool) -> bytes:
    """The client's bytes, less what only the gateway may set, plus what it sets. O(body).

    `inject_salt` adds the share group's salt; usage is always asked for in streams. Raises `BadRequest` where a part
    of the body that `read_request` only passed over is not UTF-8, or nested too deeply.
    """
    try:
        return _spliced(request, inject_salt=inject_salt)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise BadRequest("the request body is not valid JSON: not UTF-8") from None
    except RecursionError:
        raise BadRequest("the request body is nested too deeply") from None


def _spliced(request: InferenceRequest, *, inject_salt: bool) -> bytes:
    keys = _keys.decode(request.body).keys()
    body = cut_fields(request.body, ENGINE_CONTROL_FIELDS) if keys & ENGINE_CONTROL_FIELDS else request.body
    ours: dict[str, bytes] = {}
    if inject_salt:
        ours["cache_salt"] = msgspec.json.encode(request.tenant.salt)
    if request.stream and not request.client_wants_usage:
        if "stream_options" in keys:
            body = put_in_object(body, "stream_options", {"include_usage": b"true"})
        else:
            ours["stream_options"] = b'{"include_usage":true}'
    return add_fields(body, ours)


def upstream_headers(request: InferenceRequest) -> Headers:
    """The client's headers less those that steer an engine, with our request id."""
    passed = tuple(
        (name, value)
        for name, value in request.headers
        if name not in ENGINE_CONTROL_HEADERS and not name.startswith(_OVERRIDE_HEADERS)
    )
    return (*passed, (b"x-request-id", request.id.encode()))


def _decode(route: Route, body: bytes) -> _Chat | _Completion:
    try:
        return _chat.decode(body) if route is Route.CHAT else _completion.decode(body)
    except msgspec.ValidationError as error:
        raise BadRequest(str(error), param=_place(str(error))) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"the request body is not valid JSON: {_without_content(error)}") from None
    except RecursionError:
        raise BadRequest("the request body is nested too deeply") from None


def _prompt(view: _Chat | _Completion) -> PromptView:
    if isinstance(view, _Completion):
        return PromptView(prompt=view.prompt, add_special_tokens=view.add_special_tokens)
    return PromptView(
        messages=view.messages,
        tools=view.tools,
        documents=view.documents,
        add_generation_prompt=view.add_generation_prompt,
        continue_final_message=view.continue_final_message,
        add_special_tokens=view.add_special_tokens,
        template_kwargs=view.chat_template_kwargs or {},
        reasoning_effort=view.reasoning_effort,
    )


def _place(text: str) -> str | None:
    """The path in msgspec's message ("... - at `$.messages[0]`"), in the form the OpenAI API uses."""
    _, found, path = text.rpartition("`$")
    return path.strip("`.") or None if found else None


def _without_content(error: Exception) -> str:
    return "not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
