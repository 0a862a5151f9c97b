"""One request at two endpoints, from the choice of both to its end.

chosen ──> prefill leg ──handed──> decode leg ──> answer
   seats of both                seat of the second          given back once each, however it ends
                      `─────────────────────> freed, where no decode engine was told of it
"""

from collections.abc import Callable
from dataclasses import dataclass

from backends.disaggregated import DecodeReport, Handed, Handover, Meeting
from billing import Usage
from gateway.perf_lines import Prefill
from gateway.receipts import Sent
from gateway.scheduling import Candidate, Decision, SplitPart
from gateway.seats import Seat
from gateway.types import Headers


@dataclass(frozen=True, slots=True)
class DecodeSide:
    """Who answers: as a candidate that was handed nothing yet, and what its engine says of itself."""

    candidate: Candidate
    version: str | None
    block_tokens: int


@dataclass(slots=True)
class Split:
    """Mutable, owned by the exchange that it is part of."""

    part: SplitPart
    asked: Decision
    """The decision among those that compute prompts."""
    handover: Handover
    meeting: Meeting
    sent: Sent
    """The prompt at the endpoint that computes it."""
    seat: Seat
    decode: DecodeSide
    decode_seat: Seat | None
    """Reserved with the choice, so that others see it; the decode leg takes it over."""
    free: Callable[["Split"], None]
    """Told of what was handed over and will not be fetched."""
    headers: Headers
    """What goes with the prefill leg."""
    prefill: Prefill | None = None
    handed: Handed | None = None
    usage: Usage | None = None
    """The prefill leg's own, once it was answered."""
    handed_s: float = 0.0
    """When it was handed over, by the monotonic clock."""
    legs_s: float = 0.0
    """How long the prefill leg took before the decode leg was sent."""
    fetched: bool = False
    """Whether a decode engine may have been told of what was handed over: it is free there then, or soon."""

    @property
    def endpoint_id(self) -> str:
        """Who computes the prompt."""
        return self.part.prefill.endpoint_id

    @property
    def cached_tokens(self) -> int | None:
        """What of the prompt was cached, by the word of who computed it; None: it did not say."""
        told = None if self.usage is None else self.usage.cached_tokens
        return self.handed.cached_tokens if told is None and self.handed is not None else told

    @property
    def is_handed(self) -> bool:
        """Whether the prompt was computed for who answers."""
        return self.handed is not None

    @property
    def waits_for_decode(self) -> bool:
        """Whether something was handed over that nobody has fetched."""
        return self.handed is not None and self.handed.params is not None and not self.fetched

    def reports(self, prompt_tokens: int) -> tuple[int, int] | None:
        """The least and the most cached tokens that the decode leg should report; None where nobody can say."""
        if self.handed is None:
            return None
        seen = DecodeReport(
            self.decode.version, self.handed, self.cached_tokens, prompt_tokens, self.decode.block_tokens
        )
        return self.handover.reports(seen)

    def decode_leg_begins(self) -> None:
        """A decode engine may know from now on what was handed over."""
        self.fetched = True

    def take_decode_seat(self) -> Seat | None:
        """The seat at who answers, for the decode leg; None where it was taken before."""
        seat, self.decode_seat = self.decode_seat, None
        return seat

    def release(self) -> None:
        """Give back what is reserved at both; idempotent."""
        self.seat.release()
        if self.prefill is not None:
            self.prefill.end()
        if self.decode_seat is not None:
            self.decode_seat.release()
            self.decode_seat = None

    def end(self) -> None:
        """It goes no further: give back what is reserved, and free what nobody fetched; idempotent."""
        self.release()
        if self.waits_for_decode and self.handover.decode_frees:
            self.fetched = True
            self.free(self)
