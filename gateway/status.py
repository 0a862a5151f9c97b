"""The pages that carry no tokens: `/health`, `/ready`, `/metrics`, `/v1/models`.

`/health` is 200 while the process lives and says what is degraded; `/ready` is 200 while requests can be served.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import msgspec

from backends import EndpointSnapshot, ServedModel
from billing import Ledger
from billing.prices.live import LivePrices
from gateway.admission import Admission
from gateway.discovery.members import Discovering
from gateway.errors import ModelNotFound, Unavailable
from gateway.event_feeds import EventFeeds, FeedReport
from gateway.exposition import Form, form_for
from gateway.feed_metrics import FeedMetrics
from gateway.fleet import Fleet
from gateway.health_report import standing_of, troubles_of
from gateway.health_watch import HealthWatch
from gateway.keys_watch import KeysWatch
from gateway.ledger_setup import ledger_trouble
from gateway.limits import Limits
from gateway.model_routes import ModelRoutes
from gateway.parity import ParityBook
from gateway.planning import Planner
from gateway.product_version import product_version
from gateway.queueing.gate import Gate
from gateway.served_models import serves
from gateway.team.member import Team
from gateway.team.messages import Crew, Metrics
from gateway.telemetry import Telemetry
from gateway.templates.store import TemplateStore
from gateway.types import Headers
from prefix_index import SharedIndex
from prefix_index.kv_events.feed_types import FeedState

_METRICS: Final = "/metrics"
_MODELS: Final = "/v1/models"
_PARTS: Final = (
    *("index", "ledger", "tokenizer", "parity", "isolation"),
    *("kv_events", "limits", "keys", "prices", "templates", "endpoints", "discovery", "workers", "canary", "epp"),
)
"""All that can be degraded."""
_DEAF: Final = frozenset({FeedState.AWAY, FeedState.SILENT})


@dataclass(frozen=True, slots=True)
class Answer:
    """A finished page."""

    status: int
    headers: Headers
    body: bytes


TenantPage = Callable[[str, str, str], Awaitable[Answer]]
"""Answers a tenant about itself; given the tenant's id, the path and the query string."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page and whether a tenant's key is needed to see it."""

    render: Callable[[], Awaitable[Answer]]
    needs_key: bool = False


@dataclass(frozen=True, slots=True)
class StatusParts:
    """The objects whose state the pages show."""

    fleet: Fleet
    planner: Planner
    index: SharedIndex
    ledger: Ledger
    parity: ParityBook
    feeds: EventFeeds
    telemetry: Telemetry
    prices: LivePrices
    limits: Limits
    keys_watch: KeysWatch
    admission: Admission
    discovering: Discovering
    health: HealthWatch
    draining: Callable[[], bool]
    """Whether the gateway was told to stop."""
    team: Team | None = None
    gate: Gate | None = None
    """What requests wait at while all endpoints are full; None where no endpoint has a bound."""
    templates: TemplateStore | None = None
    routes: ModelRoutes | None = None
    plane_trouble: Callable[[], str | None] = lambda: None
    """What does not work of who carries the calls."""


class StatusPages:
    """The pages by path."""

    def __init__(self, parts: StatusParts) -> None:
        self._fleet = parts.fleet
        self._planner = parts.planner
        self._index = parts.index
        self._ledger = parts.ledger
        self._parity = parts.parity
        self._feeds = parts.feeds
        self._telemetry = parts.telemetry
        self._prices = parts.prices
        self._limits = parts.limits
        self._keys_watch = parts.keys_watch
        self._admission = parts.admission
        self._discovering = parts.discovering
        self._watch = parts.health
        self._draining = parts.draining
        self._team = parts.team
        self._gate = parts.gate
        self._templates = parts.templates
        self._routes = parts.routes
        self._plane_trouble = parts.plane_trouble
        self._pages = {
            "/health": Page(self._health),
            "/ready": Page(self._ready),
        }

    def find(self, path: str, headers: Headers) -> Page | None:
        """The page at a path. The models' come in the form of the API whose client asks."""
        if path == _MODELS or path.startswith(f"{_MODELS}/"):
            name = path.removeprefix(_MODELS).removeprefix("/")
            anthropic = any(header == b"anthropic-version" for header, _ in headers)
            return Page(partial(self._models, name, anthropic=anthropic), needs_key=True)
        if path == _METRICS:
            return Page(partial(self._metrics, form_for(headers)))
        return self._pages.get(path)

    def degraded(self) -> dict[str, str]:
        """Each part that works in a reduced way, and why."""
        everyone = self._fleet.snapshot()
        return {
            **self._stores_in_trouble(),
            **self._prompts_in_trouble(everyone),
            **self._files_refused(),
            **self._endpoints_in_trouble(everyone),
        }

    def _stores_in_trouble(self) -> dict[str, str]:
        found: dict[str, str] = {}
        if self._index.degraded_reason is not None:
            found["index"] = self._index.degraded_reason
        trouble = ledger_trouble(self._ledger)
        if trouble is not None:
            found["ledger"] = trouble
        if self._limits.is_away:
            found["limits"] = "Redis is away: limits and budgets are not shared among replicas at the moment"
        return found

    def _prompts_in_trouble(self, everyone: Sequence[EndpointSnapshot]) -> dict[str, str]:
        """Models whose prompts are not read as their engines read them."""
        found: dict[str, str] = {}
        inexact = sorted(
            model
            for model, served in self._fleet.models().items()
            if served.parent is None  # an adapter is tokenised as its base is
            and not self._planner.is_exact(model, [endpoint for endpoint in everyone if serves(endpoint, model)])
        )
        if inexact:
            found["tokenizer"] = f"no tokenizer for {', '.join(inexact)}; prefixes are matched by bytes"
        wrong = self._parity.degraded()
        if wrong:
            told = "; ".join(f"{model}: {', '.join(shapes)}" for model, shapes in wrong.items())
            found["parity"] = f"the tokenizer or template given here counts otherwise than the engine: {told}"
        return found

    def _endpoints_in_trouble(self, everyone: Sequence[EndpointSnapshot]) -> dict[str, str]:
        """Endpoints that get no requests, or say nothing of their caches, and workers that are not there."""
        found: dict[str, str] = {}
        shut_out = self._fleet.shut_out()
        if shut_out:
            found["isolation"] = (
                "these take no requests, since they cannot keep share groups apart (put all tenants into one group, "
                f"or set isolation: none): {', '.join(shut_out)}"
            )
        up = {endpoint.id for endpoint in everyone if endpoint.healthy}  # who is down publishes nothing either
        deaf = [
            f"{one.endpoint_id}: {one.why or one.state}"
            for one in self._feeds.reports()
            if one.state in _DEAF and one.endpoint_id in up
        ]
        if deaf:
            found["kv_events"] = "; ".join(deaf)
        if trouble := troubles_of(everyone):
            found["endpoints"] = trouble
        crew = self._crew
        if crew is not None and crew.alive < crew.wanted:
            found["workers"] = f"{crew.alive} of {crew.wanted} serve; the others are being started"
        return found

    @property
    def _crew(self) -> Crew | None:
        return None if self._team is None else self._team.crew

    def _files_refused(self) -> dict[str, str]:
        """Files that changed while we run, and cannot be used as they are; endpoints that cannot be found or used; arms
        of a model's name that get nothing."""
        found = {}
        if self._keys_watch.problem is not None:
            found["keys"] = "the keys file cannot be used as it is now, the keys before stay in force; the log says why"
        if self._prices.problem is not None:
            found["prices"] = f"the price file cannot be used as it is now, those before hold: {self._prices.problem}"
        if self._templates is not None and self._templates.problems:
            said = "; ".join(self._templates.problems)
            found["templates"] = f"these cannot be used as they are now, those before stay in force: {said}"
        if lost := self._discovering.problems():
            found["discovery"] = "; ".join(lost)
        if self._routes is not None and (stopped := self._routes.problems()):
            found["canary"] = "; ".join(stopped)
        if unseen := self._plane_trouble():
            found["epp"] = unseen
        return found

    async def _health(self) -> Answer:
        degraded = self.degraded()
        endpoints = {
            endpoint.id: {
                "healthy": endpoint.healthy,
                "why": endpoint.unhealthy_reason,
                "engine": endpoint.facts.engine if endpoint.facts else None,
                "standing": standing_of(endpoint),
                "generation": endpoint.generation,
                "block_size_tokens": endpoint.facts.block_size if endpoint.facts else None,
                "capacity_blocks": endpoint.facts.capacity_blocks if endpoint.facts else None,
                "reports_cached_tokens": endpoint.facts.reports_cached_tokens if endpoint.facts else None,
                "keeps_share_groups_apart": endpoint.facts.supports_cache_salt if endpoint.facts else None,
                "in_flight_requests": self._fleet.in_flight(endpoint.id).requests,
            }
            for endpoint in self._fleet.snapshot()
        }
        status = "degraded" if degraded else "ok"
        queue = {} if self._gate is None else {"queue": self._gate.report()}
        said = {"status": status, "version": product_version(), "degraded": degraded}
        return _json(200, {**said, **self._workers(), **queue, "endpoints": endpoints})

    def _workers(self) -> dict[str, object]:
        """How many workers there are, where there are several."""
        crew = self._crew
        return {} if crew is None else {"workers": {"alive": crew.alive, "wanted": crew.wanted}}

    async def _ready(self) -> Answer:
        there = [endpoint for endpoint in self._fleet.snapshot() if endpoint.healthy or endpoint.last_resort]
        takers = [endpoint.id for endpoint in there if not endpoint.draining]
        draining, ledger = self._draining(), self._ledger.healthy
        ready = bool(takers) and ledger and not draining
        answer = {"ready": ready, "endpoints": takers, "ledger": ledger, "draining": draining, **self._workers()}
        return _json(200 if ready else 503, answer)

    async def _models(self, name: str, *, anthropic: bool) -> Answer:
        models = self._fleet.models()
        if not models:
            raise Unavailable("no backend answers at the moment, so its models are not known; try again")
        if self._routes is not None:
            models |= {alias.id: alias for alias in self._routes.aliases(models)}
        form = _anthropic_model if anthropic else _openai_model
        if name:
            if name not in models:
                raise ModelNotFound(f"no backend serves the model {name[:100]!r}", param="model")
            return _json(200, form(models[name]))
        data = [form(model) for _, model in sorted(models.items())]
        ends = {"has_more": False, "first_id": data[0]["id"], "last_id": data[-1]["id"]}
        return _json(200, {"data": data, **(ends if anthropic else {"object": "list"})})

    async def _metrics(self, form: Form) -> Answer:
        """The metrics of this process; of a gateway of several workers, of all of them."""
        if self._team is None:
            body = await self.exposition(form)
        else:
            replies = await self._team.ask(Metrics(form is Form.OPEN_METRICS))
            if not replies:  # ours alone would look as if the counters of the others had begun anew
                raise Unavailable("the metrics of the other workers could not be read; try again")
            body = replies[0].body
        return Answer(200, ((b"content-type", form.value),), body)

    async def exposition(self, form: Form = Form.OPEN_METRICS) -> bytes:
        """The text of this process's metrics, brought up to date."""
        self._bring_up_to_date(self._telemetry)
        return await asyncio.to_thread(self._telemetry.exposition, form)

    def _bring_up_to_date(self, telemetry: Telemetry) -> None:
        """The metrics of what is kept elsewhere. O(endpoints)."""
        degraded = self.degraded()
        for part in _PARTS:
            telemetry.degraded.labels(part).set(part in degraded)
        for endpoint in self._fleet.snapshot():
            telemetry.endpoint_healthy.labels(endpoint.id).set(endpoint.healthy)
        telemetry.index_dropped_writes.stands_at(self._index.dropped_writes)
        telemetry.index_queued_writes.set(self._index.queued_writes)
        telemetry.index_stand_in_matches.stands_at(self._index.stand_in_matches)
        self._limits.show()
        self._discovering.show()
        self._watch.show()
        if self._routes is not None:
            self._routes.show()
        telemetry.pressure.queued.set(self._admission.queued)
        telemetry.pressure.admitted.set(self._admission.running)
        telemetry.pressure.body_bytes.set(self._admission.held_bytes)
        if self._gate is not None:
            self._gate.show()
        for report in self._feeds.reports():
            _show_feed(telemetry.feeds, report)


def _show_feed(metrics: FeedMetrics, report: FeedReport) -> None:
    metrics.show_state(report.endpoint_id, report.rank, report.state.value, [state.value for state in FeedState])
    metrics.show_counts(report.endpoint_id, report.rank, report.counts)
    metrics.show_mirror(report.endpoint_id, report.rank, report.blocks, report.lag_s)


def _openai_model(model: ServedModel) -> dict[str, object]:
    return {
        "id": model.id,
        "object": "model",
        "created": 0,
        "owned_by": "prefixgate",
        "max_model_len": model.max_model_len,
        "parent": model.parent,
        **({} if model.alias_of is None else {"root": model.alias_of}),
    }


def _anthropic_model(model: ServedModel) -> dict[str, object]:
    """When a model was made is not known; the wire type wants a time all the same."""
    return {"type": "model", "id": model.id, "display_name": model.id, "created_at": "1970-01-01T00:00:00Z"}


def _json(status: int, content: Mapping[str, object]) -> Answer:
    body = msgspec.json.encode(content)
    return Answer(status, ((b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))), body)
