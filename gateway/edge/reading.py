"""Bytes of a client's body become an `InferenceRequest`, whatever dialect they are in.

    chat, completions, embeddings  --typed view-------------------------.
    messages, responses            --decoded--> chat form --typed view--+--> InferenceRequest, and the bytes

Only what the gateway itself needs is looked at; everything else is the engine's to judge and passes unread. The views
are typed, so a wrong type is answered with the path of the field and never with its content.
"""

import re
from codecs import BOM_UTF8
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from operator import attrgetter
from typing import Any, Final

import msgspec

from gateway.edge.control_fields import ADAPTER_FIELDS, ALTERING_FIELDS, ENGINE_CONTROL_FIELDS
from gateway.edge.messages import MessagesTranslation
from gateway.edge.responses import KEPT_BY_SERVER, ResponsesTranslation
from gateway.edge.translation import Translation
from gateway.errors import BadRequest
from gateway.surrogates import decode
from gateway.timing import Marks
from gateway.types import ForeignForm, Headers, InferenceRequest, Reason, RequestId, Route, Tenant
from prefix_index.prompt import PromptView

TRANSLATIONS: Final[Mapping[Route, Translation]] = {
    Route.MESSAGES: MessagesTranslation(),
    Route.RESPONSES: ResponsesTranslation(),
}
"""The dialects that a server of chat completions can serve with our help."""

LONGEST_OUTPUT_TOKENS = (1 << 31) - 1
"""What a client's limit weighs as load at most: it may have hundreds of digits, and engines judge it anyway."""

MOST_CHOICES: Final = 1 << 20
"""Answers that a client may ask for as far as we count."""

LOOP_SAFE_PARSED_BYTES: Final = 512 * 1024
"""A body that may be read on the event loop: under 2 ms."""

_NULL = b"null"
_ABSENT: Final = msgspec.Raw(_NULL)
"""Stands for a field that the body does not have, by being the object that it is."""
_TRUE_WORDS = frozenset({"true", "1", "t", "yes", "y", "on"})
_MISSING = re.compile(r"missing required field `([^`]+)`(?: - at `\$\.?([^`]*)`)?")
_WHY_REFUSED: Final = (
    "this is not served: an engine's conversations and items belong to no tenant, and what is computed in the "
    "background could not be billed"
)
_FALSE: Final = (_NULL, b"false", b"0")
_RAW_FIELDS: Final = (*ENGINE_CONTROL_FIELDS, *ALTERING_FIELDS, *ADAPTER_FIELDS, "user", "safety_identifier")
"""Fields of which only their JSON matters, or that may be of any type."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """What is known of a request before its body is read. `path` has its query; times as in `InferenceRequest`."""

    id: RequestId
    tenant: Tenant
    route: Route
    path: str
    headers: Headers
    started_s: float
    opened_at: datetime
    marks: Marks = field(default_factory=Marks, repr=False, compare=False)


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class _Steering(msgspec.Struct, kw_only=True):
    """The fields by which a client would steer an engine: whether they are there is all that matters."""

    bootstrap_host: msgspec.Raw = _ABSENT
    bootstrap_port: msgspec.Raw = _ABSENT
    bootstrap_room: msgspec.Raw = _ABSENT
    cache_prompt: msgspec.Raw = _ABSENT
    cache_salt: msgspec.Raw = _ABSENT
    conversation_params: msgspec.Raw = _ABSENT
    custom_logit_processor: msgspec.Raw = _ABSENT
    data_parallel_rank: msgspec.Raw = _ABSENT
    disagg_prefill_dp_rank: msgspec.Raw = _ABSENT
    disaggregated_params: msgspec.Raw = _ABSENT
    ec_transfer_params: msgspec.Raw = _ABSENT
    extra_key: msgspec.Raw = _ABSENT
    id_slot: msgspec.Raw = _ABSENT
    kv_transfer_params: msgspec.Raw = _ABSENT
    n_cache_reuse: msgspec.Raw = _ABSENT
    priority: msgspec.Raw = _ABSENT
    request_id: msgspec.Raw = _ABSENT
    rid: msgspec.Raw = _ABSENT
    routed_dp_rank: msgspec.Raw = _ABSENT
    session_params: msgspec.Raw = _ABSENT
    slot_id: msgspec.Raw = _ABSENT
    vllm_xargs: msgspec.Raw = _ABSENT


class _Common(_Steering, kw_only=True):
    model: str | None = None
    stream: bool | int | float | str | None = None
    stream_options: _StreamOptions | msgspec.UnsetType | None = msgspec.UNSET
    max_tokens: int | float | None = None
    max_completion_tokens: int | float | None = None
    n: msgspec.Raw = _ABSENT
    best_of: msgspec.Raw = _ABSENT
    n_predict: msgspec.Raw = _ABSENT
    user: msgspec.Raw = _ABSENT
    safety_identifier: msgspec.Raw = _ABSENT
    adapter_id: msgspec.Raw = _ABSENT
    lora: msgspec.Raw = _ABSENT
    lora_path: msgspec.Raw = _ABSENT
    lora_request: msgspec.Raw = _ABSENT
    chat_template: msgspec.Raw = _ABSENT
    input_ids: msgspec.Raw = _ABSENT
    media_io_kwargs: msgspec.Raw = _ABSENT
    mm_processor_kwargs: msgspec.Raw = _ABSENT
    prompt_embeds: msgspec.Raw = _ABSENT
    prompt_logprobs: msgspec.Raw = _ABSENT
    prompt_token_ids: msgspec.Raw = _ABSENT
    truncate_prompt_tokens: msgspec.Raw = _ABSENT


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
    prompt: Any = None
    add_special_tokens: bool = True
    echo: msgspec.Raw = _ABSENT
    logprobs: msgspec.Raw = _ABSENT

    @property
    def wants_logprobs_of_prompt(self) -> bool:
        """Whether the engine has to compute all of the prompt: it reads nothing from its cache then."""
        return bytes(self.echo) not in _FALSE and bytes(self.logprobs) != _NULL


class _Embedding(_Common, kw_only=True):
    input: str | list[Any] | None = None
    messages: list[Any] | None = None


class _Named(_Common, kw_only=True):
    """Any body that names a model."""


_NO_NAMES: Final[frozenset[str]] = frozenset()
_STEERING: Final = tuple(sorted(ENGINE_CONTROL_FIELDS))
_steering_values = attrgetter(*_STEERING)
_altering = attrgetter(*ALTERING_FIELDS)
_adapters = attrgetter(*ADAPTER_FIELDS)

_chat = msgspec.json.Decoder(_Chat)
_completion = msgspec.json.Decoder(_Completion)
_embedding = msgspec.json.Decoder(_Embedding)
_named = msgspec.json.Decoder(_Named)
_text = msgspec.json.Decoder(str)
_object = msgspec.json.Decoder(dict[str, Any])


def read_request(arrival: Arrival, body: bytes) -> InferenceRequest:
    """Parse a body. Raises `BadRequest` with the place and kind of the fault, never with content. O(body)."""
    try:
        return _read(arrival, body.removeprefix(BOM_UTF8))  # engines read past it
    except msgspec.ValidationError as error:
        raise BadRequest(str(error), param=_place(str(error))) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"the request body is not valid JSON: {_without_content(error)}") from None
    except RecursionError:
        raise BadRequest("the request body is nested too deeply") from None


def _read(arrival: Arrival, body: bytes) -> InferenceRequest:
    match arrival.route:
        case Route.CHAT:
            chat = decode(_chat, body)
            return _request(arrival, body, chat, _chat_prompt(chat))
        case Route.COMPLETIONS:
            completion = decode(_completion, body)
            prompt = PromptView(prompt=completion.prompt, add_special_tokens=completion.add_special_tokens)
            return _request(arrival, body, completion, prompt)
        case Route.MESSAGES | Route.RESPONSES:
            return _read_foreign(arrival, body)
        case Route.EMBEDDINGS:
            return _request(arrival, body, decode(_embedding, body), PromptView(prompt=""), blind=Reason.NO_KV)
        case Route.OTHER:
            return _request(arrival, body, decode(_named, body), PromptView(prompt=""), blind=Reason.NO_KV)


def _read_foreign(arrival: Arrival, body: bytes) -> InferenceRequest:
    decoded = decode(_object, body)
    translation = TRANSLATIONS[arrival.route]
    form = translation.chat_form(decoded)
    view = msgspec.convert(_raw_where_needed(form), _Chat)
    unsayable = translation.untranslatable(decoded)
    if arrival.route is Route.MESSAGES:
        return _request(arrival, body, view, _chat_prompt(view), foreign=ForeignForm(decoded, form, unsayable))
    refused = _refused(decoded)
    if refused is not None:
        raise BadRequest(_WHY_REFUSED, param=refused)
    previous = decoded.get("previous_response_id")
    if previous is not None and not isinstance(previous, str):
        raise BadRequest("Expected `str | null`", param="previous_response_id")
    foreign = ForeignForm(decoded, form, unsayable, previous)
    continued = any(decoded.get(name) is not None for name in KEPT_BY_SERVER)
    blind = Reason.PREVIOUS_RESPONSE if continued else None
    return _request(arrival, body, view, _chat_prompt(view), foreign=foreign, blind=blind)


def _refused(body: Mapping[str, object]) -> str | None:
    """The place of something in a request for a response that no engine may be asked for. O(items)."""
    if _is_true(body.get("background")):
        return "background"
    if body.get("conversation") is not None:
        return "conversation"
    given = body.get("input")
    for place, item in enumerate(given if isinstance(given, list) else []):
        if isinstance(item, dict) and item.get("type") == "item_reference":
            return f"input[{place}].type"
    return None


def _raw_where_needed(form: Mapping[str, object]) -> dict[str, object]:
    """`form` for conversion to a view: the fields that a view keeps as JSON text are JSON text."""
    found = {name: msgspec.Raw(msgspec.json.encode(form[name])) for name in _RAW_FIELDS if name in form}
    return {**form, **found} if found else dict(form)


def _request(
    arrival: Arrival,
    body: bytes,
    view: _Common,
    prompt: PromptView,
    *,
    foreign: ForeignForm | None = None,
    blind: Reason | None = None,
) -> InferenceRequest:
    if blind is None:
        blind = _blind(view, prompt)
    options = view.stream_options
    return InferenceRequest(
        id=arrival.id,
        tenant=arrival.tenant,
        route=arrival.route,
        path=arrival.path,
        model=view.model or "",
        stream=_is_true(view.stream),
        client_wants_usage=isinstance(options, _StreamOptions) and bool(options.include_usage),
        max_output_tokens=_longest_output(view),
        prompt=prompt,
        body=body,
        headers=arrival.headers,
        started_s=arrival.started_s,
        opened_at=arrival.opened_at,
        foreign=foreign,
        adapter=_adapter(view),
        blind=blind,
        user=_user(view) if foreign is None else _foreign_user(foreign.body),
        choices=_choices(view, prompt),
        steering=_steering(view) if foreign is None else ENGINE_CONTROL_FIELDS.intersection(foreign.body),
        has_stream_options=options is not msgspec.UNSET,
        marks=arrival.marks,
    )


def _choices(view: _Common, prompt: PromptView) -> int:
    """How many answers are computed, to all prompts together; what is no number is the engine's to judge."""
    asked = [_number(raw) for raw in (view.n, view.best_of) if raw is not _ABSENT]
    each = int(min(max((number for number in asked if number is not None and number >= 1), default=1), MOST_CHOICES))
    several = prompt.prompt
    if isinstance(several, list) and several and isinstance(several[0], str | list):
        each *= len(several)
    return max(each, 1)


def _longest_output(view: _Common) -> int | None:
    """The client's limit of an answer. Engines differ in which they follow where a body has several: the largest."""
    predicted = None if view.n_predict is _ABSENT else _number(view.n_predict)
    said = (view.max_tokens, view.max_completion_tokens, predicted)
    return max((limit for limit in map(_as_limit, said) if limit is not None), default=None)


def _number(raw: msgspec.Raw) -> float | None:
    """A number as lax engines read it, so from 2.0 and "2" too; None for what is none."""
    try:
        return float(bytes(raw).strip(b'"'))
    except ValueError:
        return None


def _user(view: _Common) -> str | None:
    """Whom the client says it asks for; what is no text is the engine's to judge."""
    for raw in (view.user, view.safety_identifier):
        said = b"" if raw is _ABSENT else bytes(raw)
        if said.startswith(b'"'):
            return decode(_text, said)
    return None


def _foreign_user(body: Mapping[str, object]) -> str | None:
    """The same in a request for a response, or Anthropic's for a message."""
    metadata = body.get("metadata")
    of_message = metadata.get("user_id") if isinstance(metadata, dict) else None
    said = (body.get("user"), body.get("safety_identifier"), of_message)
    return next((one for one in said if isinstance(one, str)), None)


def _is_true(value: object) -> bool:
    """Whether engines read a value as true: their models are as lax as that."""
    return value.strip().lower() in _TRUE_WORDS if isinstance(value, str) else value == 1


def _as_limit(value: float | None) -> int | None:
    """A client's limit of tokens as load; below 0 is none, which some engines write so."""
    if value is None or not value >= 0:
        return None
    return int(min(value, LONGEST_OUTPUT_TOKENS))


def _chat_prompt(view: _Chat) -> PromptView:
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


def _blind(view: _Common, prompt: PromptView) -> Reason | None:
    """Why the tokens cannot be known, so far as the body tells by itself."""
    if any([_is_said(raw) for raw in _altering(view)]):
        return Reason.ENGINE_ALTERS
    if isinstance(view, _Completion) and view.wants_logprobs_of_prompt:
        return Reason.ENGINE_ALTERS
    several = prompt.prompt
    if isinstance(several, list) and len(several) > 1 and isinstance(several[0], str | list):
        return Reason.PROMPT_BATCH
    return None


def _adapter(view: _Common) -> str | None:
    """What the body says of adapters, each field as its JSON; None where it says nothing."""
    said = [(name, raw) for name, raw in zip(ADAPTER_FIELDS, _adapters(view), strict=True) if _is_said(raw)]
    named = {name: msgspec.json.decode(raw) for name, raw in said}
    return msgspec.json.encode(named, order="sorted").decode() if named else None


def _is_said(raw: msgspec.Raw) -> bool:
    return raw is not _ABSENT and bytes(raw) != _NULL


def _steering(view: _Steering) -> frozenset[str]:
    """The names of those that are there, whatever they say."""
    values = _steering_values(view)
    if all([value is _ABSENT for value in values]):
        return _NO_NAMES
    return frozenset(name for name, value in zip(_STEERING, values, strict=True) if value is not _ABSENT)


def _place(text: str) -> str | None:
    """The path in msgspec's message ("... - at `$.messages[0]`"), in the form the OpenAI API uses."""
    missing = _MISSING.search(text)
    if missing is not None:
        return f"{missing[2]}.{missing[1]}" if missing[2] else missing[1]
    _, found, path = text.rpartition("`$")
    return path.strip("`.") or None if found else None


def _without_content(error: Exception) -> str:
    return "not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
