"""Requests at two endpoints: one computes the prompt, another answers.

weighing.py    does it pay, and between whom
splitting.py   what the dispatcher asks: prepare, send beside, give up
aside.py       who is left out of it for a while
legs.py        the prefill leg, from its body to its receipt
releasing.py   what nobody fetches is freed
truth.py       whose cached tokens are billed, and whose are disputed
advice.py      roles without a counterpart, for `prefixgate check`
setup.py       all of it, from the configuration
"""

from gateway.disaggregation.legs import for_decode
from gateway.disaggregation.setup import Disaggregating, DisaggregationParts
from gateway.disaggregation.splitting import (
    PrefillFailed,
    Splitter,
    failed_together,
    may_be_anothers_fault,
    reinstated,
    ruled_out,
)
from gateway.disaggregation.truth import billed, prompt_at, received, split_columns

__all__ = [
    "Disaggregating",
    "DisaggregationParts",
    "PrefillFailed",
    "Splitter",
    "billed",
    "failed_together",
    "for_decode",
    "may_be_anothers_fault",
    "prompt_at",
    "received",
    "reinstated",
    "ruled_out",
    "split_columns",
]
