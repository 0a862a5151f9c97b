"""What an engine gets: the client's bytes with our fields spliced in, or the chat that asks the same.

engine speaks the dialect      client's bytes, less control fields, plus salt (and the wish for usage in streams); where
                               the client's name of the model stands for another, that one in its place
engine speaks only chat        the chat form, written anew
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Protocol

import msgspec

from gateway.edge.control_fields import ENGINE_CONTROL_FIELDS, is_control_header
from gateway.edge.reading import TRANSLATIONS
from gateway.edge.splice import add_fields, cut_fields, put_in_object, set_field
from gateway.edge.translation import AnswerTranslator
from gateway.errors import BadRequest
from gateway.types import ForeignForm, Headers, InferenceRequest, RequestId, Route

_USAGE_ON_REQUEST: Final = frozenset({Route.CHAT, Route.COMPLETIONS})
"""Dialects whose streams carry usage only where it is asked for."""


def asks_for_usage(request: InferenceRequest) -> bool:
    """Whether the gateway asks for the usage of a stream, which the client did not: it is taken out again."""
    return request.stream and not request.client_wants_usage and request.route in _USAGE_ON_REQUEST


class EngineNames(Protocol):
    """What an engine is told beside the client's words: its name for the model, and fields, as JSON."""

    @property
    def model(self) -> str: ...
    @property
    def fields(self) -> Mapping[str, bytes]: ...


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request as one engine gets it. `translator` is set where its answer must be translated back."""

    path: str
    body: bytes
    translator: AnswerTranslator | None = None


def outgoing(
    request: InferenceRequest,
    *,
    natively: bool,
    inject_salt: bool,
    priority: float | None = None,
    adapter: EngineNames | None = None,
    refuses: frozenset[str] = frozenset(),
) -> Outgoing:
    """The request for an engine that speaks its dialect (`natively`), or only chat completions. O(body).

    `inject_salt` adds the share group's salt, `priority` the engine's field of that name, `adapter` what the engine
    must be told of the request's LoRA adapter beyond its name; `refuses` are fields of OpenAI's API that would make the
    engine refuse the whole, and are taken out; usage is always asked for in streams. Raises
    `BadRequest` where a part of the body that `read_request` only passed over is not UTF-8, or nested too deeply.
    """
    try:
        if natively:
            out = Outgoing(request.path, _spliced(request, inject_salt, priority, adapter))
        else:
            assert request.foreign is not None
            assert request.translatable, "what cannot be translated goes nowhere else"
            out = _translated(request, request.foreign, inject_salt, priority, adapter)
        named = any(name.encode() in out.body for name in refuses)
        return replace(out, body=cut_fields(out.body, refuses)) if named else out
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise BadRequest("the request body is not valid JSON: not UTF-8") from None
    except RecursionError:
        raise BadRequest("the request body is nested too deeply") from None


def upstream_headers(request: InferenceRequest) -> Headers:
    """The client's headers less those that steer an engine, with our request id."""
    return engine_headers(request.headers, request.id)


def engine_headers(headers: Headers, request_id: RequestId) -> Headers:
    """The same for any request. What the client's `Connection` names ends here, and cannot take ours with it."""
    named = {word.strip().lower() for name, value in headers if name == b"connection" for word in value.split(b",")}
    passed = (
        (name, value)
        for name, value in headers
        if name != b"connection" and name not in named and not is_control_header(name)
    )
    return (*passed, (b"x-request-id", request_id.encode()))


def _spliced(
    request: InferenceRequest, inject_salt: bool, priority: float | None, adapter: EngineNames | None
) -> bytes:
    body = cut_fields(request.body, ENGINE_CONTROL_FIELDS | request.steering) if request.steering else request.body
    model = request.model if adapter is None else adapter.model
    if model != request.asked_model:
        body = set_field(body, "model", msgspec.json.encode(model))
    ours: dict[str, bytes] = {} if adapter is None else {**adapter.fields}
    if inject_salt:
        ours["cache_salt"] = msgspec.json.encode(request.tenant.salt)
    if priority is not None:
        ours["priority"] = msgspec.json.encode(priority)
    if asks_for_usage(request):
        if request.has_stream_options:
            body = put_in_object(body, "stream_options", {"include_usage": b"true"})
        else:
            ours["stream_options"] = b'{"include_usage":true}'
    return add_fields(body, ours)


def _translated(
    request: InferenceRequest,
    foreign: ForeignForm,
    inject_salt: bool,
    priority: float | None,
    adapter: EngineNames | None,
) -> Outgoing:
    denied = ENGINE_CONTROL_FIELDS | request.steering
    chat = {name: value for name, value in foreign.chat.items() if name not in denied}
    model = request.model if adapter is None else adapter.model
    if model != request.asked_model:
        chat["model"] = model
    if adapter is not None:
        chat |= {name: msgspec.Raw(value) for name, value in adapter.fields.items()}
    if inject_salt:
        chat["cache_salt"] = request.tenant.salt
    if priority is not None:
        chat["priority"] = priority
    translator = TRANSLATIONS[request.route].translator(foreign.body)
    return Outgoing(Route.CHAT.value, msgspec.json.encode(chat), translator)
