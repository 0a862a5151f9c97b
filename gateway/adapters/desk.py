"""All that a request's way has to do with adapters: named, weighed, told to the engine, learned from.

named ──> the request as its adapter's            naming.py
weighed ─> candidates, each with what loading costs there     book.py
form ───> how the chosen engine is told           forms.py
sent ───> it is loaded there from now on; where it was not, what its first use took beyond its prefill is learned
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from backends import EndpointSnapshot, ServedModel
from gateway.adapters.book import AdapterBook, Residency
from gateway.adapters.forms import AdapterForm, form_at
from gateway.adapters.naming import SEPARATOR, adapter_meant, adapter_of, named
from gateway.scheduling import Candidate, endpoint_at
from gateway.types import InferenceRequest, Route

PRELOADED: Final = frozenset({"llamacpp", "tgi"})
"""Engines that load all their adapters when they start, and no other."""


class Adapters:
    """Of one process. `snapshot` gives the fleet as last seen, the same object while it is the same; `forms` are
    `forms_of` what is configured, `numbered` the models whose adapters have numbers there. Requests without an adapter
    cost a look at their model's name."""

    def __init__(
        self,
        book: AdapterBook,
        forms: Mapping[str, Mapping[str, dict[str, bytes]]],
        snapshot: Callable[[], tuple[EndpointSnapshot, ...]],
        numbered: frozenset[str] = frozenset(),
    ) -> None:
        self.book = book
        self._forms = forms
        self._snapshot = snapshot
        self._numbered = numbered
        self._seen: tuple[EndpointSnapshot, ...] = ()
        self._by_id: dict[str, EndpointSnapshot] = {}
        self._listing: set[str] = set()
        """Endpoints that have any."""
        self._served: dict[str, ServedModel] = {}
        """Of what was asked for since the fleet changed; names that nobody serves are not kept."""

    def served(self, name: str) -> ServedModel | None:
        """The model that endpoints know by this name. O(1), or O(endpoints × models) after a change."""
        self._look()
        found = self._served.get(name)
        if found is None:
            known = (one for e in self._seen if e.facts is not None for one in e.facts.models)
            found = next((one for one in known if one.id == name), None)
            if found is not None:
                self._served[name] = found
        return found

    def named(self, request: InferenceRequest) -> InferenceRequest:
        """The request with its adapter as its model, where the fleet lists it. Raises `BadRequest` or `Forbidden`."""
        if request.adapter is None and SEPARATOR not in request.model:
            return request
        return named(request, self.served, self._numbered)

    def meant_by(self, name: str) -> str | None:
        """The adapter that a model's name means; None where it means none."""
        return adapter_meant(name, self.served)

    def weighed(
        self, request: InferenceRequest, able: list[Candidate], endpoints: Sequence[EndpointSnapshot]
    ) -> list[Candidate]:
        """The candidates, with what the request's adapter costs at each. O(candidates) where it has one."""
        adapter = self._adapter_of(request.model)
        if adapter is None:
            return able
        return self.book.weighed(able, adapter, {one.id: one.load for one in endpoints if _loads(one)})

    def sent(self, request: InferenceRequest, place: str) -> Callable[[float], None] | None:
        """A request goes to a place. Where its adapter is loaded first: who is to be told how many seconds it took
        beyond its prefill."""
        return partial(self.book.learn, place) if self.used(request.model, place) else None

    def used(self, model: str, place: str) -> bool:
        """A prompt for a model, which may be an adapter, goes to a place; whether that is loaded there first."""
        adapter = self._adapter_of(model)
        endpoint = None if adapter is None else self._by_id.get(endpoint_at(place))
        if adapter is None or endpoint is None or not _loads(endpoint):
            return False
        return self.book.sent(place, adapter, endpoint.load) is Residency.ABSENT

    def form(self, request: InferenceRequest, endpoint_id: str, *, natively: bool) -> AdapterForm | None:
        """How an endpoint's engine is told of the request's adapter; None where the name of its model is all it
        needs."""
        served = self.served(request.model) if self._listing else None
        endpoint = self._by_id.get(endpoint_id)
        if served is None or served.parent is None or endpoint is None or endpoint.facts is None:
            return None
        path = request.route_path if natively else Route.CHAT.value
        return form_at(endpoint.facts.engine, request.model, served.parent, path, self._forms)

    def _adapter_of(self, model: str) -> str | None:
        self._look()
        return adapter_of(model, self.served) if self._listing else None

    def _look(self) -> None:
        """Take over the fleet as it is now; of endpoints with new facts, adapters that they list no more are
        forgotten. O(1) while nothing changes."""
        endpoints = self._snapshot()
        if endpoints is self._seen:
            return
        before, self._by_id = self._by_id, {endpoint.id: endpoint for endpoint in endpoints}
        self._seen, self._served = endpoints, {}
        self._listing &= self._by_id.keys()
        for endpoint in endpoints:
            known, facts = before.get(endpoint.id), endpoint.facts
            if facts is not None and (known is None or known.facts is not facts):
                adapters = frozenset(one.id for one in facts.models if one.parent is not None)
                (self._listing.add if adapters else self._listing.discard)(endpoint.id)
                self.book.listed(endpoint.id, adapters)


def _loads(endpoint: EndpointSnapshot) -> bool:
    """Whether an endpoint loads adapters while it serves."""
    return endpoint.facts is None or endpoint.facts.engine not in PRELOADED
