"""What became of every request of a run, in columns, and the figures that tables are made of.

    at_s | endpoint | prompt | cached | output | ttft_s | ended_s          one row a request, 8 bytes a cell
                                                                           NaN or -1: it never came to that
Costs: `note` calls O(1); `figures` O(n log n), once.
"""

import math
from array import array
from dataclasses import dataclass

UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class Figures:
    """One run in numbers. Times in seconds, shares from 0 to 1; what no request came to is NaN.

    `hit_share`: reported cached tokens of prompt tokens, over the requests whose prompt was computed. `imbalance` is
    the largest endpoint's uncached tokens over the mean of those that compute prompts. `output_tokens_per_s` is over
    the time from the first arrival to the last end. `expected_minus_reported`: of what the policy said to expect, the
    sum of differences as a share of the prompt tokens (NaN: it says nothing); `expected_off` the sum of their sizes.
    """

    requests: int
    answered: int
    failed: int
    hit_share: float
    ttft_mean_s: float
    ttft_p50_s: float
    ttft_p90_s: float
    ttft_p99_s: float
    output_tokens_per_s: float
    imbalance: float
    uncached_tokens: int
    expected_minus_reported: float
    expected_off: float
    span_s: float
    too_long: int = 0
    """Of the failed ones, those that no engine could ever hold."""


class Records:
    """Columns that grow with each request; rows by request number. Of the endpoints, so many are `decode_only`."""

    def __init__(self, endpoints: int, decode_only: int = 0) -> None:
        self._decode_only = decode_only
        self.at_s = array("d")
        self.endpoint = array("q")
        self.prompt_tokens = array("q")
        self.output_tokens = array("q")
        self.cached_tokens = array("q")
        self.ttft_s = array("d")
        self.ended_s = array("d")
        self.uncached_of = [0] * endpoints
        """Uncached prompt tokens by endpoint."""
        self.failed = 0
        self.too_long = 0
        self._expected = self._expected_off = self._expected_of = 0

    def __len__(self) -> int:
        return len(self.at_s)

    def begin(self, at_s: float, prompt_tokens: int, output_tokens: int) -> int:
        """A request has come; returns its row."""
        self.at_s.append(at_s)
        self.endpoint.append(UNKNOWN)
        self.prompt_tokens.append(prompt_tokens)
        self.output_tokens.append(output_tokens)
        self.cached_tokens.append(UNKNOWN)
        self.ttft_s.append(math.nan)
        self.ended_s.append(math.nan)
        return len(self.at_s) - 1

    def sent(self, row: int, endpoint: int) -> None:
        """It was sent there (again, where an endpoint failed it)."""
        self.endpoint[row] = endpoint
        while endpoint >= len(self.uncached_of):
            self.uncached_of.append(0)

    def first_token(self, row: int, now_s: float, cached_tokens: int, expected_tokens: int | None) -> None:
        """Its prompt is computed."""
        self.ttft_s[row] = now_s - self.at_s[row]
        self.cached_tokens[row] = cached_tokens
        self.uncached_of[self.endpoint[row]] += self.prompt_tokens[row] - cached_tokens
        if expected_tokens is not None:
            self._expected += expected_tokens - cached_tokens
            self._expected_off += abs(expected_tokens - cached_tokens)
            self._expected_of += self.prompt_tokens[row]

    def ended(self, row: int, now_s: float) -> None:
        """Its answer is whole."""
        self.ended_s[row] = now_s

    def figures(self, skip_s: float = 0.0) -> Figures:
        """The run in numbers; requests that arrived in the first `skip_s` seconds (a warm-up) are left out of shares
        and times, not of the work by endpoint."""
        from_s = (self.at_s[0] if self.at_s else 0.0) + skip_s
        rows = [row for row, at_s in enumerate(self.at_s) if at_s >= from_s]
        computed = [row for row in rows if self.cached_tokens[row] != UNKNOWN]
        ended = [row for row in rows if not math.isnan(self.ended_s[row])]
        prompt = sum(self.prompt_tokens[row] for row in computed)
        cached = sum(self.cached_tokens[row] for row in computed)
        ttfts = sorted(self.ttft_s[row] for row in computed)
        span_s = (max(self.ended_s[row] for row in ended) - from_s) if ended else math.nan
        busiest, total = max(self.uncached_of, default=0), sum(self.uncached_of)
        return Figures(
            requests=len(rows),
            answered=len(ended),
            failed=self.failed,
            hit_share=cached / prompt if prompt else math.nan,
            ttft_mean_s=sum(ttfts) / len(ttfts) if ttfts else math.nan,
            ttft_p50_s=quantile(ttfts, 0.5),
            ttft_p90_s=quantile(ttfts, 0.9),
            ttft_p99_s=quantile(ttfts, 0.99),
            output_tokens_per_s=sum(self.output_tokens[row] for row in ended) / span_s if span_s > 0 else math.nan,
            imbalance=busiest * (len(self.uncached_of) - self._decode_only) / total if total else math.nan,
            uncached_tokens=total,
            expected_minus_reported=self._expected / self._expected_of if self._expected_of else math.nan,
            expected_off=self._expected_off / self._expected_of if self._expected_of else math.nan,
            span_s=span_s,
            too_long=self.too_long,
        )


def quantile(ordered: list[float], share: float) -> float:
    """The smallest value that `share` of them do not exceed (nearest rank); NaN of none."""
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)] if ordered else math.nan
