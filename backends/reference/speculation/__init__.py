"""Speculative decoding: guess several tokens, compute them in one step, keep those that would have come anyway.

drafts.py      what a draft is, and who makes one
lookup.py      ... from what followed the same tokens before
draft_model.py ... with a smaller model over the same blocks
verifying.py   which tokens of a draft are kept: pure
steps.py       the step of an engine that speculates
setup.py       who drafts, as it is configured
"""

from backends.reference.speculation.draft_model import ModelDrafter, first_layers
from backends.reference.speculation.drafts import Draft, Drafter
from backends.reference.speculation.lookup import LookupDrafter
from backends.reference.speculation.steps import SpeculativeSteps
from backends.reference.speculation.verifying import verified

__all__ = [
    "Draft",
    "Drafter",
    "LookupDrafter",
    "ModelDrafter",
    "SpeculativeSteps",
    "first_layers",
    "verified",
]
