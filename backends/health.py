"""Asking one endpoint how it is: the control plane's side of an endpoint.

    detect:  /v1/models ──> dialect ──> metrics page, information page, event sources, routes ──> EndpointFacts
    poll:    health path (200?) ──> metrics page ──> LoadSample

Both raise `ProbeFailed` with a short reason, and nothing else, whatever the endpoint does. A metrics or information
page that is missing makes figures unknown, not the endpoint unhealthy. Each request opens its own connection, so that
a check also proves that the endpoint can be dialled.

Whether an engine speaks a route is asked with an empty object, which every route refuses at once and none computes:

    POST /v1/messages {}  ──>  400, 422, ...: spoken      404, 405, 501: not      no answer: as it was known before
"""

import asyncio
import json
import re
import ssl
from dataclasses import replace
from urllib.parse import urlsplit

import httpx

from backends.dialects import (
    DIALECTS,
    OPENAI,
    Asked,
    Dialect,
    Info,
    Samples,
    facts,
    load,
    names_read,
    recognise,
    scan,
    signed,
    total,
)
from backends.errors import ProbeFailed
from backends.types import (
    EndpointConfig,
    EndpointFacts,
    EventSourceFacts,
    KnownAdapter,
    LoadSample,
    ServedModel,
    StartedAdapter,
)

MODELS_PATH = "/v1/models"
MAX_PAGE_BYTES = 8 * 1024 * 1024
"""Longest page read: a hundred times a busy vLLM's metrics."""
ROUTE_PATIENCE_S = 1.0
"""For the routes of an endpoint together, and for its event sources: one that swallows what it does not know shall not
look as if it were down."""
SAME_START_S = 0.05
"""Two start times this close are one: an engine writes down its own once, to hundredths of a second."""
_OK, _NOT_FOUND = 200, 404
_NEEDS_KEY = frozenset({401, 403})
_ABSENT = frozenset({_NOT_FOUND, 405, 501})
_HALF_A_PAIR = re.compile(rb"\\u[dD][89a-fA-F]")
_ABOUT_A_MODEL = re.compile(rb"\bmodel\b", re.IGNORECASE)


def http_client(config: EndpointConfig) -> httpx.AsyncClient:
    """A control-plane client for one endpoint: its base path, key, CA and certificate; nothing from the environment.

    It has no time-outs of its own: the deadline around each poll is the only one.
    """
    context: ssl.SSLContext
    if config.url.startswith("https:"):
        context = ssl.create_default_context(cafile=config.ca_file)
        if config.cert_file is not None:
            context.load_cert_chain(config.cert_file, config.key_file)
    else:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    headers = {} if config.api_key is None else {"authorization": f"Bearer {config.api_key}"}
    if config.server_name is not None:
        headers["host"] = httpx.URL(config.url).copy_with(host=config.server_name).netloc.decode("ascii")

    async def expect(request: httpx.Request) -> None:
        if config.server_name is not None:
            request.extensions = {**request.extensions, "sni_hostname": config.server_name}

    return httpx.AsyncClient(
        base_url=config.url,
        headers=headers,
        event_hooks={"request": [expect]},
        verify=context,
        timeout=httpx.Timeout(None),
        trust_env=False,
        follow_redirects=False,
        limits=httpx.Limits(max_keepalive_connections=0),
    )


class _PageTooLong(ProbeFailed):
    """There is a page, and it is none that we read: that is no word on the endpoint's health."""


class Probe:
    """Detection and polling of one endpoint over `http`; the caller sets the deadline around each call."""

    def __init__(self, config: EndpointConfig, http: httpx.AsyncClient) -> None:
        self._id = config.id
        self._ends_with_v1 = config.url.endswith("/v1")  # as a client's base URL does, and LiteLLM's api_base
        self._http = http
        self._host = urlsplit(config.url).hostname or ""
        self._adapters = config.adapters
        self._spoken: dict[str, bool] = {}
        self._sources: object = None
        self._told: Samples = {}
        self._asked_adapters = False
        self._started: tuple[StartedAdapter, ...] | None = None

    async def detect(self) -> tuple[Dialect, EndpointFacts]:
        """Which engine answers and what it says of itself; three to five requests, then one a route, all at once.

        One that is not known by its models or metrics is asked for the page that only its engine has, each in turn.
        """
        models = await self._models()
        dialect = recognise(models)
        if dialect is OPENAI:
            dialect = recognise(models, await self._metrics(dialect) or "")
        if dialect is OPENAI:
            dialect = await self._by_signature()
        metrics = await self._metrics(dialect)
        samples = {**self._told, **(await self._samples(dialect, metrics) or {})}
        info = await self._info(dialect)
        sources = await self._event_sources(dialect, info)
        asked = Asked(
            spoken=tuple(await self._routes(dialect)),
            event_sources=sources,
            has_metrics=metrics is not None,
            has_event_page=None if dialect.event_sources_path is None else self._sources is not None,
            adapters=await self._started_adapters(dialect, samples),
        )
        return dialect, with_adapters(facts(dialect, models, samples, info, asked), self._adapters)

    async def poll(self, dialect: Dialect, now_s: float) -> LoadSample | None:
        """The endpoint's load at `now_s`, None where no page has it; raises `ProbeFailed` when unhealthy."""
        await self._check(dialect)
        samples = await self._samples(dialect, await self._metrics(dialect))
        return None if samples is None else load(dialect, samples, now_s)

    async def _check(self, dialect: Dialect) -> None:
        for path in dialect.health_paths:
            status, _ = await self._get(path)
            if status == _OK:
                return
            if status != _NOT_FOUND:
                raise ProbeFailed(self._id, _refusal(path, status))
        await self._models()

    async def _models(self) -> object:
        status, body = await self._get(MODELS_PATH)
        if status != _OK:
            slip = ", and its URL ends with /v1: give it without" if self._ends_with_v1 and status == _NOT_FOUND else ""
            raise ProbeFailed(self._id, _refusal(MODELS_PATH, status) + slip)
        models = _json(body)
        if models is None:
            raise ProbeFailed(self._id, f"GET {MODELS_PATH} answered no JSON")
        return models

    async def _metrics(self, dialect: Dialect) -> str | None:
        return None if dialect.metrics_path is None else await self._page(dialect.metrics_path)

    async def _samples(self, dialect: Dialect, metrics: str | None) -> Samples | None:
        """The series of its metrics page, else those of the page that stands in for one; None where there is neither.

        What the latter said last is kept: where reading empties it, the next reader finds nothing of the cache's size.
        """
        if metrics is not None:
            return scan(metrics, names_read(dialect))
        if dialect.load_page is None:
            return None
        answer = await self._in_time(dialect.load_page.path)
        if answer is None or answer[0] != _OK:
            return None
        samples = dialect.load_page.read(_json(answer[1]))
        self._told = samples or self._told
        return samples

    async def _by_signature(self) -> Dialect:
        """The engine whose own page this one answers; the generic one where none does, or none in time."""
        try:
            async with asyncio.timeout(ROUTE_PATIENCE_S):
                for dialect in DIALECTS:
                    if dialect.signature is not None:
                        status, body = await self._get(dialect.signature[0])
                        if status == _OK and signed(dialect, _json(body)):
                            return dialect
        except (TimeoutError, ProbeFailed):
            pass
        return OPENAI

    async def _info(self, dialect: Dialect) -> Info:
        for path in dialect.info_paths:
            try:
                status, body = await self._get(path)
            except _PageTooLong:
                continue
            if status == _OK:
                info = _json(body)
                return info if isinstance(info, dict) else {}
        return {}

    async def _started_adapters(self, dialect: Dialect, samples: Samples) -> tuple[StartedAdapter, ...] | None:
        """Its adapters that are no models, as it said last. llama.cpp answers only between two batches, and keeps a
        thread waiting until then, so it is asked while nobody works there, and else only if it never was."""
        if dialect.adapters_path is None:
            return None
        is_idle = total(samples, dialect.metrics.running) == 0
        if is_idle or not self._asked_adapters:
            self._asked_adapters = True
            answer = await self._in_time(dialect.adapters_path)
            if answer is not None:
                self._started = dialect.started_adapters(_json(answer[1])) if answer[0] == _OK else None
        return self._started

    async def _event_sources(self, dialect: Dialect, info: Info) -> tuple[EventSourceFacts, ...]:
        """Where events of its cache come from. What cannot be told now stays as it was, at first: nowhere."""
        if dialect.event_sources_path is not None:
            answer = await self._in_time(dialect.event_sources_path)
            if answer is not None:
                self._sources = _json(answer[1]) if answer[0] == _OK else None
        return dialect.event_sources(self._sources, info, self._host)

    async def _routes(self, dialect: Dialect) -> list[str]:
        """The uncertain routes that it speaks. What cannot be told now stays as it was, at first: not spoken."""
        try:
            async with asyncio.timeout(ROUTE_PATIENCE_S), asyncio.TaskGroup() as group:
                for path in dialect.uncertain_routes:
                    group.create_task(self._ask_route(path))
        except TimeoutError:
            pass
        return [path for path in dialect.uncertain_routes if self._spoken.get(path)]

    async def _ask_route(self, path: str) -> None:
        try:
            async with self._http.stream("POST", path, json={}) as response:
                spoken = response.status_code not in _ABSENT
                if response.status_code == _NOT_FOUND:  # some engines say so of a model they do not have
                    spoken = _ABOUT_A_MODEL.search(await _first_piece(response)) is not None
        except httpx.HTTPError:
            return
        self._spoken[path] = spoken

    async def _page(self, path: str) -> str | None:
        try:
            status, body = await self._get(path)
        except _PageTooLong:
            return None
        return body.decode("utf-8", "replace") if status == _OK else None

    async def _in_time(self, path: str) -> tuple[int, bytes] | None:
        """A page that is no sign of health; None where it does not come, or not in time."""
        try:
            async with asyncio.timeout(ROUTE_PATIENCE_S):
                return await self._get(path)
        except (TimeoutError, ProbeFailed):
            return None

    async def _get(self, path: str) -> tuple[int, bytes]:
        body = bytearray()
        try:
            async with self._http.stream("GET", path) as response:
                async for piece in response.aiter_bytes():
                    body += piece
                    if len(body) > MAX_PAGE_BYTES:
                        raise _PageTooLong(self._id, f"GET {path} answered more than {MAX_PAGE_BYTES} bytes")
                return response.status_code, bytes(body)
        except httpx.ConnectError:
            raise ProbeFailed(self._id, "cannot connect") from None
        except httpx.HTTPError:
            raise ProbeFailed(self._id, f"GET {path} broke off") from None


def _refusal(path: str, status: int) -> str:
    hint = " (backends[].api_key_file or api_key_env)" if status in _NEEDS_KEY else ""
    return f"GET {path} answered {status}{hint}"


def with_adapters(told: EndpointFacts, known: tuple[KnownAdapter, ...]) -> EndpointFacts:
    """What an endpoint says of itself, and of the adapters that it does not list, those that it has."""
    listed = {model.id: model for model in told.models}
    more = [
        ServedModel(one.name, listed[one.parent].max_model_len, one.parent)
        for one in known
        if one.name not in listed and one.parent in listed and (one.engines is None or told.engine in one.engines)
    ]
    return replace(told, models=(*told.models, *more)) if more else told


def asleep(dialect: Dialect, load: LoadSample | None) -> bool:
    """Whether an engine would answer, but sleeps until somebody wakes it."""
    return dialect.sleeps and load is not None and load.awake == frozenset()


def replaced(before: EndpointFacts | None, after: EndpointFacts) -> bool:
    """Whether another build answers at the address now, which is another process for sure."""
    return before is not None and None not in (before.version, after.version) and before.version != after.version


def restarted(before: LoadSample | None, after: LoadSample | None, was_down: bool) -> bool:
    """Whether the engine behind an endpoint is another process than at the last sample, its cache gone.

    Counters that went back show a restart, also one that took less than a second. What was awake and is not any more
    has dropped its cache, which is the same: a model that left the memory, a rank that sleeps. Otherwise its start time
    decides where both samples have it. Without it, counters that went on show that there was none, and an endpoint that
    was down is taken for restarted: a cache wrongly forgotten costs one prefill, one wrongly believed in a detour for
    every request.
    """
    if before is None or after is None:
        return was_down
    counters = [
        (old, new)
        for old, new in (
            (before.prefix_hits, after.prefix_hits),
            (before.prefix_queries, after.prefix_queries),
            (before.steps, after.steps),
            (before.finished, after.finished),
        )
        if old is not None and new is not None
    ]
    if before.awake is not None and after.awake is not None and not before.awake <= after.awake:
        return True
    if any(new < old for old, new in counters):
        return True
    if before.started_at_s is not None and after.started_at_s is not None:
        return abs(after.started_at_s - before.started_at_s) > SAME_START_S
    return was_down and not any(old > 0 for old, _ in counters)


async def _first_piece(response: httpx.Response) -> bytes:
    """What arrived of a body at once: enough of an error's text, whatever its length."""
    async for piece in response.aiter_bytes():
        return piece
    return b""


def _json(body: bytes) -> object:
    """What a page says, None where it is no JSON. Strings that cannot be written as UTF-8 are left out of it."""
    try:
        said: object = json.loads(body)
        return _written(said) if _HALF_A_PAIR.search(body) else said
    except (ValueError, RecursionError):
        return None


def _written(said: object) -> object:
    """With None for strings that are no text: JSON can spell half a surrogate pair, which nobody could pass on."""
    match said:
        case str():
            return said if _is_text(said) else None
        case list():
            return [_written(one) for one in said]
        case dict():
            return {key: _written(value) for key, value in said.items() if _is_text(key)}
    return said


def _is_text(said: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in said)
