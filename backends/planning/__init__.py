"""Planning: what a model needs on a GPU, how fast it is there, what that costs; by arithmetic, before it is bought.

    models ─┐                          ┌─> sizes     what fits
            ├─> machine ─> steps ──────┼─> serving   a replica under load      apart   prompts here, answers there
    GPUs  ──┘   (bits, GPUs as one)    ├─> money     a million tokens, break-even with an API
                                       └─> speculation
    plan: all of it, each figure with its formula
    paging: what memory is wasted without pages, played

Each figure says how it came about (`figures`). Two shares of the datasheet are assumed, of arithmetic and of bandwidth;
`fit` takes them from endpoints that are measured.
"""

from backends.planning.apart import Apart, apart
from backends.planning.figures import Figure, readable
from backends.planning.fit import ImpossibleSpeed, Shares, corrected, shares_of
from backends.planning.machine import Bits, Machine
from backends.planning.money import ApiPrice, TokenCosts, break_even_tokens, mix_price, token_costs
from backends.planning.plan import Asked, Plan, fewest_gpus, plan
from backends.planning.serving import Limits, Request, Served, at_batch, best
from backends.planning.sizes import capacity, kv_per_token, most_sequences, weights
from backends.planning.speculation import speed_up, tokens_a_step
from backends.planning.steps import Step, decode_step, prefill

__all__ = [
    "Apart",
    "ApiPrice",
    "Asked",
    "Bits",
    "Figure",
    "ImpossibleSpeed",
    "Limits",
    "Machine",
    "Plan",
    "Request",
    "Served",
    "Shares",
    "Step",
    "TokenCosts",
    "apart",
    "at_batch",
    "best",
    "break_even_tokens",
    "capacity",
    "corrected",
    "decode_step",
    "fewest_gpus",
    "kv_per_token",
    "mix_price",
    "most_sequences",
    "plan",
    "prefill",
    "readable",
    "shares_of",
    "speed_up",
    "token_costs",
    "tokens_a_step",
    "weights",
]
