"""What was asked for on a command line, as a load against an address; and the study of it.

URL, key, model          the address; its first model where none is named
lengths | load | trace | corpus      what is sent
clients | rates          how it comes
"""

from codecs import BOM_UTF8
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import inf
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from backends.client import UpstreamClient, UpstreamResponse
from backends.errors import InvalidEndpoint, UpstreamError
from backends.types import Deadlines, EndpointConfig, EndpointId, UpstreamRequest
from gateway.measuring.driving import Phase
from gateway.measuring.errors import AddressRefuses, LoadUnusable
from gateway.measuring.shapes import Shape, shaped
from gateway.measuring.spread import burstiness_of
from gateway.measuring.study import Frame, study_of
from gateway.measuring.sweep import CONNECTIONS, Clients, Plan, Rates, Swept, Told, sweep
from gateway.measuring.types import Study
from gateway.measuring.wording import Wording
from gateway.sim.loads import WorkloadError, by_name, open_trace
from gateway.sim.loads.lines import lines_of
from gateway.sim.types import Workload

_PATIENCE: Final = Deadlines(connect_s=10.0, first_byte_s=60.0, idle_s=60.0)
_OK: Final = 200
_PAGE_BYTES: Final = 4 * 1024 * 1024
_SAID_CHARS: Final = 200
_NO_ENTRY: Final = frozenset((401, 403))
_SERVER_FAILS: Final = 500
_VERSION: Final = "/v1"
_SAMPLE: Final = 256
"""Requests of a load whose median says how long the usual prompt is."""


@dataclass(frozen=True, slots=True)
class Offered:
    """As it was typed. Of `load`, `trace` and `corpus` one at most, else lengths are those of `shape`. `rates` are
    requests a second; `cv` None: as recorded, and a rate is how many times as fast."""

    url: str
    model: str | None
    api_key: str | None
    clients: Sequence[int] | None
    rates: Sequence[float] | None
    cv: float | None
    shape: Shape
    load: str | None
    trace: Path | None
    corpus: Path | None
    phase: Phase
    seed: int


def need_load(offered: Offered) -> None:
    """Look at what would be sent, and send nothing. Raises `LoadUnusable`."""
    _usual_tokens(_load(offered))
    if offered.corpus is not None:
        _corpus(offered.corpus)
    _how(offered)


async def loaded(offered: Offered, frame: Frame, told: Told) -> Study:
    """Put the load on the address. Raises `MeasuringError`s; `LoadUnusable` before anything is sent, but for a trace
    that is wrong further on than its first requests."""
    address = _address(offered)
    load = _load(offered)
    chats = None if offered.corpus is None else _corpus(offered.corpus)
    how = _how(offered)
    wording = Wording(offered.model or await _first_model(address))
    plan = Plan(
        load=load,
        offered=how,
        phase=offered.phase,
        limits=frame.limits,
        prompt_tokens=_usual_tokens(load),
        bodies=None if chats is None else [_body(wording, one, offered.shape.output_tokens) for one in chats],
        seed=offered.seed,
    )
    try:
        swept = await sweep(address, wording, plan, told)
    except* WorkloadError as errors:
        raise LoadUnusable(str(errors.exceptions[0])) from None
    return _study(swept, offered, frame, wording.model)


def _study(swept: Swept, offered: Offered, frame: Frame, model: str) -> Study:
    source = f"{offered.url}, model {model}, {offered.corpus or offered.trace or offered.load or 'lengths as asked'}"
    study = study_of(source, swept.windows, frame, swept.notes)
    return replace(
        study,
        arrivals=burstiness_of(one.asked_s for one in swept.windows[-1].seen),
        notes=(*study.notes, f"seed {offered.seed}"),
    )


def _address(offered: Offered) -> EndpointConfig:
    """A base with or without the `/v1` that clients' libraries want."""
    url = offered.url.rstrip("/").removesuffix(_VERSION)
    try:
        return EndpointConfig(EndpointId("address"), url, api_key=offered.api_key or None)
    except InvalidEndpoint as error:
        raise LoadUnusable(str(error)) from None


def _how(offered: Offered) -> Rates | Clients:
    is_recorded = offered.cv is None
    if offered.clients and (offered.rates or is_recorded):
        raise LoadUnusable("either clients or rates: a loop is closed or open")
    if is_recorded and offered.trace is None and offered.load is None:
        raise LoadUnusable("only a trace or a built-in load has arrivals that were recorded")
    if offered.rates is not None:
        if not all(0 < rate < inf for rate in offered.rates):
            raise LoadUnusable("a rate is a number of requests a second, more than 0")
        return Rates(offered.rates, offered.cv)
    if is_recorded:
        return Rates([1.0], None)
    if offered.clients is not None and not all(1 <= count <= CONNECTIONS for count in offered.clients):
        raise LoadUnusable(f"there are 1 to {CONNECTIONS:,} clients")
    return Clients(offered.clients)


def _load(offered: Offered) -> Workload:
    """Without end where it is made of lengths. Raises `LoadUnusable`."""
    named = [one for one in (offered.load, offered.trace, offered.corpus) if one is not None]
    if len(named) > 1:
        raise LoadUnusable("only one of a load, a trace and a corpus")
    try:
        if offered.trace is not None:
            load = open_trace(offered.trace, offered.seed)
        elif offered.load is not None:
            if offered.load not in by_name:
                raise LoadUnusable(f"{offered.load}: built-in loads are {', '.join(by_name)}")
            load = by_name[offered.load](offered.seed)
        else:
            return shaped(offered.shape, offered.seed)
        is_empty = next(iter(load.requests), None) is None
    except WorkloadError as error:
        raise LoadUnusable(str(error)) from None
    if is_empty:
        raise LoadUnusable("the load has no request")
    return load


def _usual_tokens(load: Workload) -> int:
    """Of a prompt, the median of the first ones. Raises `LoadUnusable` where one of them is wrong."""
    try:
        lengths = sorted(request.prompt_tokens for request in islice(load.requests, _SAMPLE))
    except WorkloadError as error:
        raise LoadUnusable(str(error)) from None
    return max(lengths[len(lengths) // 2], 1)


class _Chat(msgspec.Struct):
    """A line of a corpus: `messages`, or a `prompt`, and how long the answer may be."""

    messages: list[dict[str, Any]] | None = None
    prompt: str | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None


def _corpus(path: Path) -> list[_Chat]:
    decoder = msgspec.json.Decoder(_Chat)
    chats: list[_Chat] = []
    try:
        for number, line in lines_of(path):
            chats.append(decoder.decode(line.removeprefix(BOM_UTF8)))
            if not (chats[-1].messages or chats[-1].prompt):
                raise LoadUnusable(f"{path}, line {number}: it has neither `messages` nor a `prompt`")
    except msgspec.DecodeError as error:
        raise LoadUnusable(f"{path}, line {number}: {error}") from None
    except WorkloadError as error:
        raise LoadUnusable(str(error)) from None
    return chats


def _body(wording: Wording, chat: _Chat, output_tokens: int) -> bytes:
    messages: Sequence[object] = chat.messages or [{"role": "user", "content": chat.prompt}]
    return wording.chat(messages, chat.max_tokens or output_tokens)


class _Named(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Named]


async def _first_model(address: EndpointConfig) -> str:
    async with UpstreamClient() as client:
        try:
            async with await client.send(address, UpstreamRequest("GET", "/v1/models"), _PATIENCE) as answer:
                page = await answer.read(_PAGE_BYTES)
                if answer.status != _OK:
                    raise AddressRefuses(address.url, f"status {answer.status} for /v1/models: {_advice(answer)}")
            models = msgspec.json.decode(page, type=_Models).data
        except UpstreamError as error:
            raise AddressRefuses(address.url, str(error)) from None
        except msgspec.DecodeError:
            raise AddressRefuses(address.url, "what it says of its models cannot be read: name the model") from None
    if not models:
        raise AddressRefuses(address.url, "it lists no model: name one")
    return models[0].id


def _advice(answer: UpstreamResponse) -> str:
    """What to do about a list of models that was not given."""
    if answer.status in _NO_ENTRY:
        return "its key is wrong, or none was given; --api-key-env names the variable that has it"
    where = next((value.decode("latin-1") for name, value in answer.headers if name.lower() == b"location"), None)
    if where is not None:
        return f"it sends us on to {where[:_SAID_CHARS]}, and nobody is followed: give the address itself"
    if answer.status >= _SERVER_FAILS:
        return "the server fails"
    return "is this where the routes under /v1 begin? else name the model"
