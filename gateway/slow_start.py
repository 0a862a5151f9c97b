"""Newcomers that are given new work little by little: an engine that has just started is slow for a while.

    age / for_s    0.25   0.5   0.75   1
    of the decisions in which it could be chosen, so many may choose it: one in four, one in two, ...

What it holds already it may always be asked for, as the best of those that hold it: a conversation that began there is
not sent away again. Where nobody else could take a request, it takes it. Plain calls, no I/O; O(candidates) while there
is a newcomer, else O(1).
"""

from collections.abc import Callable

from gateway.scheduling import Candidate, Filtered


class SlowStart:
    """Newcomers take `for_s`; with 0 there are none, but for those that come back after they were left out."""

    def __init__(self, for_s: float, clock: Callable[[], float]) -> None:
        self._for_s = for_s
        self._clock = clock
        self._since_s: dict[str, tuple[float, float]] = {}
        """Since when, and for how long."""
        self._credit: dict[str, float] = {}

    def begin(self, endpoint_id: str, for_s: float | None = None) -> None:
        """An endpoint is new, or comes back for `for_s`."""
        for_s = self._for_s if for_s is None else for_s
        if for_s:
            self._since_s[endpoint_id] = self._clock(), for_s
            self._credit[endpoint_id] = 0.0

    def removed(self, endpoint_id: str) -> None:
        """An endpoint is no newcomer any more, or gone."""
        self._since_s.pop(endpoint_id, None)
        self._credit.pop(endpoint_id, None)

    def thinned(self, able: list[Candidate], filtered: dict[str, Filtered]) -> list[Candidate]:
        """The candidates without newcomers that have had their share; who is left out goes into `filtered`."""
        if not self._since_s:
            return able
        now_s, left_out = self._clock(), set[str]()
        most_known = max((one.known_tokens for one in able), default=0)
        known: dict[str, int] = {}  # of several ranks, the one that has most
        for one in able:
            if one.endpoint_id in self._since_s:
                known[one.endpoint_id] = max(one.known_tokens, known.get(one.endpoint_id, 0))
        for endpoint_id, tokens in known.items():
            since_s, for_s = self._since_s[endpoint_id]
            share = (now_s - since_s) / for_s
            if share >= 1:
                self.removed(endpoint_id)
            elif not (tokens and tokens == most_known) and not self._is_due(endpoint_id, share):
                left_out.add(endpoint_id)
        rest = [one for one in able if one.endpoint_id not in left_out]
        if not rest:
            return able
        filtered.update(dict.fromkeys(left_out, Filtered.STARTING))
        return rest

    def _is_due(self, endpoint_id: str, share: float) -> bool:
        credit = self._credit[endpoint_id] + share
        self._credit[endpoint_id] = credit - 1 if credit >= 1 else credit
        return credit >= 1
