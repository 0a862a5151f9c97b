"""Seconds of work: what the scheduler's cost is made of. Pure.

    prefill(u, n) = base + u / rate + quad · u · n        u uncached of n prompt tokens

The linear term is the model's weights applied to every new token. The last is attention: each new token looks at the
whole prompt before it, so computing the end of a long prompt costs more than computing a short one of as many tokens.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PerfModel:
    """Speed of one endpoint.

    `base_s`: fixed seconds of a prefill (HTTP, scheduling, one step). `prefill_tokens_per_s`: rate of the linear
    part. `quad_s_per_token2`: seconds per pair of a new token and a prompt token. `itl_s`: seconds between two tokens
    of an answer on an endpoint that decodes nothing else. `itl_s_per_request` and `itl_s_per_context_token`: what each
    other answer, and each token of its KV cache that must be read, adds to that; 0 where nobody knows better.

    The defaults are priors for a model of 8 billion parameters on one data-centre GPU of the last generation but one:
    10,000 tokens/s is a 60 % slower machine than a current one reaches; attention at 32 layers of 32 heads of 128 is
    4 · 32 · 32 · 128 = 0.5 MFLOP a pair, about a nanosecond at 450 TFLOP/s. They only have to be right relative to
    each other: equal priors on equal endpoints rank them as the true values would.
    """

    base_s: float = 0.02
    prefill_tokens_per_s: float = 10_000.0
    quad_s_per_token2: float = 4 * 32 * 32 * 128 / 450e12
    itl_s: float = 0.02
    itl_s_per_request: float = 0.0
    itl_s_per_context_token: float = 0.0

    def __post_init__(self) -> None:
        if self.prefill_tokens_per_s <= 0:
            raise ValueError("prefill_tokens_per_s must be positive")
        decode_s = (self.itl_s, self.itl_s_per_request, self.itl_s_per_context_token)
        if min(self.base_s, self.quad_s_per_token2, *decode_s) < 0:
            raise ValueError("durations must not be negative")

    def token_s(self, prompt_tokens: int) -> float:
        """Seconds that one token of such a prompt takes to compute."""
        return 1 / self.prefill_tokens_per_s + self.quad_s_per_token2 * prompt_tokens

    def prefill_s(self, uncached_tokens: float, prompt_tokens: int) -> float:
        """Seconds to compute `uncached_tokens` (an expectation, so not always whole) of `prompt_tokens`."""
        return (
            self.base_s
            + uncached_tokens / self.prefill_tokens_per_s
            + self.quad_s_per_token2 * uncached_tokens * prompt_tokens
        )

    def queue_tokens(self, uncached_tokens: float, prompt_tokens: int) -> float:
        """What a prefill is to those who wait for it, in tokens of a short prompt: attention over a long one takes its
        share of the time, so that 100,000 tokens may be worth several times as many. `wait_s` of it is the prefill
        without its base, which prompts of one step share."""
        return uncached_tokens * (1 + self.quad_s_per_token2 * self.prefill_tokens_per_s * prompt_tokens)

    def wait_s(self, outstanding_queue_tokens: float) -> float:
        """Seconds until the prefills ahead are done."""
        return outstanding_queue_tokens / self.prefill_tokens_per_s

    def decode_s(self, output_tokens: float) -> float:
        """Seconds of an answer on an endpoint that is not crowded."""
        return self.itl_s * output_tokens

    def decode_step_s(self, requests: int, context_tokens: int) -> float:
        """Seconds of one step that gives each of so many requests a token; `context_tokens` is the sum of theirs."""
        return self.itl_s + self.itl_s_per_request * requests + self.itl_s_per_context_token * context_tokens
