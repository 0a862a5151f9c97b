"""What each endpoint is there for: to answer, or to compute prompts for those who do.

Most fleets have one role alone, `both`, and then nobody is asked: `are_split` is one comparison.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from backends import EndpointFacts, EndpointSnapshot
from backends.disaggregated import Role, handover_of
from gateway.scheduling import Filtered


@dataclass(frozen=True, slots=True)
class Place:
    """An endpoint of one of the two roles, and where its engine is met by those that answer for it (`bootstrap_port`
    None: the engine's own default)."""

    role: Role
    host: str
    bootstrap_port: int | None = None


class Roles:
    """By endpoint; who is not in it does both. Plain calls."""

    def __init__(self) -> None:
        self._places: dict[str, Place] = {}

    @property
    def are_split(self) -> bool:
        """Whether somebody computes prompts for others."""
        return bool(self._places)

    def join(self, endpoint_id: str, role: str, url: str, bootstrap: tuple[str | None, int | None]) -> None:
        """An endpoint is new, or has another role now. `bootstrap` is what the configuration says of host and port."""
        known = Role(role)
        if known is Role.BOTH:
            self._places.pop(endpoint_id, None)
            return
        host, port = bootstrap
        self._places[endpoint_id] = Place(known, host or urlsplit(url).hostname or "", port)

    def removed(self, endpoint_id: str) -> None:
        """An endpoint is none of the fleet any more."""
        self._places.pop(endpoint_id, None)

    def of(self, endpoint_id: str) -> Role:
        """The role of an endpoint."""
        place = self._places.get(endpoint_id)
        return Role.BOTH if place is None else place.role

    def place(self, endpoint_id: str) -> Place:
        """Where an endpoint of one of the two roles is met. Raises `KeyError` for another."""
        return self._places[endpoint_id]

    def as_json(self) -> Mapping[str, str]:
        """Endpoints that do not do both."""
        return {endpoint_id: place.role.value for endpoint_id, place in self._places.items()}

    def answering(
        self, endpoints: Sequence[EndpointSnapshot]
    ) -> tuple[Sequence[EndpointSnapshot], dict[str, Filtered]]:
        """Those who may answer a client, and the others with the reason. O(endpoints)."""
        places = self._places
        if not places:
            return endpoints, {}
        others = {one.id for one in endpoints if one.id in places and places[one.id].role is Role.PREFILL}
        if not others:
            return endpoints, {}
        return [one for one in endpoints if one.id not in others], dict.fromkeys(others, Filtered.PREFILLS)

    def prefilling(self, endpoints: Sequence[EndpointSnapshot]) -> list[EndpointSnapshot]:
        """Those who compute prompts for others. O(endpoints)."""
        return [one for one in endpoints if self.of(one.id) is Role.PREFILL]

    def answers_alone(self, endpoint_id: str, facts: EndpointFacts | None) -> bool:
        """Whether an endpoint that answers can compute a prompt itself: not all engines of the role `decode` can."""
        if facts is None or self.of(endpoint_id) is not Role.DECODE:
            return True
        way = handover_of(facts.engine)
        return way is None or way.decodes_alone

    def can_be_warmed(self, endpoint_id: str, facts: EndpointFacts | None) -> bool:
        """Whether a prompt may be sent there alone, for nobody, to be computed: not where answers are made of prompts
        that others compute, nor where an engine takes none without its counterpart."""
        role = self.of(endpoint_id)
        way = None if facts is None else handover_of(facts.engine)
        return role is Role.BOTH or (role is Role.PREFILL and (way is None or way.decodes_alone))
