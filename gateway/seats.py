"""Work reserved at an endpoint, and at the rank of it that was chosen: given back once, seen by every replica."""

from typing import Protocol

from backends import EndpointId, Reservation
from prefix_index import Chain


class SeatHost(Protocol):
    """Who counts what is reserved. Plain calls."""

    def dispatch(self, endpoint_id: str, holder: str, chain: Chain, /) -> None:
        """A prompt is sent to an endpoint."""

    def freed(self, endpoint_id: str, chain: Chain, /) -> None:
        """The work on a prompt has ended."""

    def publish_load(self, endpoint_id: EndpointId, place: str, /) -> None:
        """What is outstanding there has changed."""


class Seat:
    """Work reserved at one endpoint; give it back exactly once with `release` (more often is harmless)."""

    __slots__ = ("_chain", "_endpoint_id", "_host", "_place", "_reservations")

    def __init__(self, host: SeatHost, endpoint_id: EndpointId, place: str, *reservations: Reservation) -> None:
        self._host = host
        self._endpoint_id = endpoint_id
        self._place = place
        self._reservations = reservations
        self._chain: Chain | None = None

    def take(self, holder: str, chain: Chain) -> None:
        """The prompt is sent: the endpoint's holder, of one rank, has it from now on, as far as is known."""
        self._chain = chain
        self._host.dispatch(self._endpoint_id, holder, chain)

    def first_token(self) -> None:
        """The prompt is computed: its tokens no longer make others wait."""
        for reservation in self._reservations:
            reservation.first_token()
        self._host.publish_load(self._endpoint_id, self._place)

    def release(self) -> None:
        """The work has ended, however."""
        for reservation in self._reservations:
            reservation.release()
        if self._chain is not None:
            self._host.freed(self._endpoint_id, self._chain)
            self._chain = None
        self._host.publish_load(self._endpoint_id, self._place)
