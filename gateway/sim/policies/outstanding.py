"""What a router has sent and has not seen end: requests, and tokens still to be prefilled, by endpoint.

    choose --expect(request, uncached)--> sent  +uncached, +1      first_token  -uncached      ended  -1, -what is left

All of a request is given back once it has ended, whichever way. A restart changes nothing here: its requests end too.
"""

from dataclasses import dataclass, field

from gateway.sim.types import SimRequest


@dataclass(slots=True)
class Outstanding:
    """Sums by endpoint number; both lists are as long as the highest number seen (see `grow`)."""

    requests: list[int] = field(default_factory=list)
    uncached_tokens: list[int] = field(default_factory=list)
    _expected: tuple[int, int] = (-1, 0)
    _prefills: dict[tuple[int, int], int] = field(default_factory=dict)

    def grow(self, endpoints: int) -> None:
        """Know of so many endpoints: those that joined have nothing outstanding."""
        missing = endpoints - len(self.requests)
        if missing > 0:
            self.requests += [0] * missing
            self.uncached_tokens += [0] * missing

    def expect(self, request: SimRequest, uncached_tokens: int) -> None:
        """So many tokens will be computed where the request was just sent to; without this it is the whole prompt."""
        self._expected = (request.number, uncached_tokens)

    def sent(self, request: SimRequest, endpoint: int, now_s: float) -> None:
        """Count it, from dispatch on."""
        self.grow(endpoint + 1)
        number, tokens = self._expected
        if number != request.number:
            tokens = request.prompt_tokens
        self._prefills[request.number, endpoint] = tokens
        self.requests[endpoint] += 1
        self.uncached_tokens[endpoint] += tokens

    def first_token(self, request: SimRequest, endpoint: int, now_s: float, cached_tokens: int) -> None:
        """Its prompt is computed."""
        self.uncached_tokens[endpoint] -= self._prefills.pop((request.number, endpoint), 0)

    def ended(self, request: SimRequest, endpoint: int, now_s: float) -> None:
        """It is gone, its prompt too if that was never computed."""
        self.uncached_tokens[endpoint] -= self._prefills.pop((request.number, endpoint), 0)
        self.requests[endpoint] -= 1

    def restarted(self, endpoint: int, now_s: float) -> None:
        """Nothing: what was lost is said to have ended, one by one."""
