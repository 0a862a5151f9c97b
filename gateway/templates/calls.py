"""Bodies that call a template become bodies as every engine takes them.

    {"model": "m", "template": "support@3", "variables": {...}, "seed": 1}      /v1/chat/completions
    {"model": "m", "seed": 1, "messages": [...]}

    {"model": "m", "prompt": {"id": "support", "variables": {...}}, "input": "And then?"}      /v1/responses
    {"model": "m", "input": [..., {"role": "user", "content": "And then?"}]}

Everything else of the body stays as the client wrote it, to the byte. Prompts that another service keeps (`pmpt_...`)
are none of ours and pass. A body that is no JSON passes too: who reads it next says what is wrong.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from gateway.edge.reading import Arrival
from gateway.edge.splice import add_fields, cut_fields
from gateway.errors import (
    BadRequest,
    BodyTooLarge,
    GatewayError,
    TemplateNotAllowed,
    TemplateNotFound,
    TemplateVariables,
)
from gateway.surrogates import UNREADABLE, decode
from gateway.template_metrics import TemplateMetrics
from gateway.templates.store import TemplateStore
from gateway.templates.types import KeptTemplate, reference_of
from gateway.types import Labels, Route
from prefix_index.layout import RenderingFailed, VariablesInvalid

LOOP_SAFE_CHARS: Final = 64 * 1024
"""Of body and template together: rendered on the event loop in under 2 ms."""
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_FOREIGN: Final = "pmpt_"
_OF_CHAT: Final = frozenset({"template", "variables", "messages"})
_OF_RESPONSES: Final = frozenset({"prompt", "input"})
_NULL: Final = msgspec.Raw(b"null")
_WHITE_SPACE: Final = b" \t\r\n"
_NO_MESSAGES: Final = (b"null", b"[]")
"""Official clients insist on messages, so who calls a template by them sends an empty list."""


class _ChatCall(msgspec.Struct):
    template: msgspec.Raw = _NULL
    variables: msgspec.Raw = _NULL
    messages: msgspec.Raw = _NULL


class _ResponsesCall(msgspec.Struct):
    prompt: msgspec.Raw = _NULL
    input: msgspec.Raw = _NULL


_chat_call = msgspec.json.Decoder(_ChatCall)
_responses_call = msgspec.json.Decoder(_ResponsesCall)
_any = msgspec.json.Decoder()


@dataclass(frozen=True, slots=True)
class Called:
    """A body to go on with; `template` is the `name@version` that it was rendered from, None where it called none."""

    body: bytes
    template: str | None = None


@dataclass(frozen=True, slots=True)
class _Call:
    """What a body asks for; `where` is the path of the field that names the template, `given` that of its variables."""

    named: str
    variables: Mapping[str, Any]
    where: str
    given: str
    input: bytes = b"null"


class TemplateCalls:
    """Renders calls. `max_bytes` bounds the body that comes out, as it does those that come in."""

    def __init__(self, store: TemplateStore, metrics: TemplateMetrics, max_bytes: int) -> None:
        self._store = store
        self._metrics = metrics
        self._max_bytes = max_bytes

    async def rendered(self, arrival: Arrival, body: bytes) -> Called:
        """The body with messages in place of the call. Raises `GatewayError`, which names the field. O(body).

        A body without a call costs a search for a word.
        """
        if not _may_call(arrival.route, body):
            return Called(body)
        try:
            found = _call_of(arrival.route, body)
            if found is None:
                return Called(body)
            body = body.removeprefix(_BYTE_ORDER_MARK)
            kept = self._kept(found, str(arrival.tenant.id))
            if len(body) + kept.chars > LOOP_SAFE_CHARS:
                called = await asyncio.to_thread(self._render, arrival.route, body, found, kept)
            else:
                called = self._render(arrival.route, body, found, kept)
        except GatewayError as error:
            self._metrics.refused(_reason(error)).inc()
            raise
        self._metrics.calls(kept.name, kept.version).inc()
        return called

    def _kept(self, call: _Call, tenant: str) -> KeptTemplate:
        reference = reference_of(call.named)
        if reference is None:
            raise BadRequest("a template is named as name@version, or name for the newest", param=call.where)
        try:
            return self._store.find(reference, tenant)
        except (TemplateNotFound, TemplateNotAllowed) as error:
            error.param = call.where
            raise

    def _render(self, route: Route, body: bytes, call: _Call, kept: KeptTemplate) -> Called:
        try:
            messages = kept.renderer.messages(call.variables)
        except VariablesInvalid as error:
            raise TemplateVariables(f"the template {kept.reference}: {error}", param=call.given) from None
        except RenderingFailed as error:
            raise TemplateVariables(f"{kept.reference}: {error}", param=call.given) from None
        spliced = _spliced(route, body, call, messages)
        if len(spliced) > self._max_bytes:
            raise BodyTooLarge(f"the body that {kept.reference} makes is longer than {self._max_bytes} bytes")
        return Called(spliced, kept.reference)


def _spliced(route: Route, body: bytes, call: _Call, messages: Sequence[Mapping[str, object]]) -> bytes:
    """The body with messages in place of the call. Raises `BadRequest` for one that only a lenient reader takes."""
    try:
        if route is Route.CHAT:
            return add_fields(cut_fields(body, _OF_CHAT), {"messages": _json(messages)})
        return add_fields(cut_fields(body, _OF_RESPONSES), {"input": _with_input(messages, call.input)})
    except (ValueError, IndexError):
        raise BadRequest("the request body is not valid JSON in UTF-8") from None


def tagged(labels: Labels, template: str) -> Labels:
    """Labels that name the template of a request in the ledger; a tag of the key's wins."""
    return replace(labels, tags={**(labels.tags or {}), "template": template})


def _may_call(route: Route, body: bytes) -> bool:
    return (route is Route.CHAT and b'"template"' in body) or (route is Route.RESPONSES and b'"prompt"' in body)


def _call_of(route: Route, body: bytes) -> _Call | None:
    """The call in a body; None where it has none, or is not readable."""
    try:
        if route is Route.CHAT:
            return _of_chat(decode(_chat_call, body.removeprefix(_BYTE_ORDER_MARK)))
        return _of_responses(decode(_responses_call, body.removeprefix(_BYTE_ORDER_MARK)))
    except UNREADABLE:
        return None


def _of_chat(view: _ChatCall) -> _Call | None:
    named = decode(_any, bytes(view.template))
    if named is None:
        return None
    if not isinstance(named, str):
        raise BadRequest("Expected `str | null`", param="template")
    if bytes(view.messages).translate(None, _WHITE_SPACE) not in _NO_MESSAGES:
        raise BadRequest("a request has messages or a template, not both", param="messages")
    return _Call(named, _variables(decode(_any, bytes(view.variables)), "variables"), "template", "variables")


def _of_responses(view: _ResponsesCall) -> _Call | None:
    prompt = decode(_any, bytes(view.prompt))
    if not isinstance(prompt, dict) or not isinstance(prompt.get("id"), str) or prompt["id"].startswith(_FOREIGN):
        return None
    version = prompt.get("version")
    if version is not None and not isinstance(version, str):
        raise BadRequest("Expected `str | null`", param="prompt.version")
    named = prompt["id"] if version is None else f"{prompt['id']}@{version}"
    variables = _variables(prompt.get("variables"), "prompt.variables")
    return _Call(named, variables, "prompt.id", "prompt.variables", bytes(view.input))


def _variables(given: object, where: str) -> Mapping[str, Any]:
    if given is not None and not isinstance(given, dict):
        raise BadRequest("Expected `object | null`", param=where)
    return given or {}


def _with_input(messages: Sequence[Mapping[str, object]], given: bytes) -> bytes:
    """The messages as items of an input, with the client's own behind them as it wrote them."""
    ours = _json(messages)
    if given == b"null":
        return ours
    if given.startswith(b"["):
        inner = given[1:-1].strip(_WHITE_SPACE)
        return ours[:-1] + b"," + inner + b"]" if inner else ours
    return ours[:-1] + b',{"role":"user","content":' + given + b"}]"


def _json(messages: Sequence[Mapping[str, object]]) -> bytes:
    try:
        return msgspec.json.encode(messages)
    except UnicodeEncodeError:
        return json.dumps(messages).encode()


def _reason(error: GatewayError) -> str:
    match error:
        case TemplateNotFound():
            return "not_found"
        case TemplateNotAllowed():
            return "not_allowed"
        case TemplateVariables():
            return "variables"
        case _:
            return "invalid"
