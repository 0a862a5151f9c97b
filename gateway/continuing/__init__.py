"""Answers that another endpoint goes on with: what was said, what is asked, how it is joined and billed.

    died ──reading──> what the client has ──asking──> prompt + text ──> another endpoint ──joining──> one stream
                                                                                       `──carrying──> one bill

When, and by whom, is decided in `gateway/continuer.py`.
"""

from gateway.continuing.asking import OPENAI_COMPLETION_TOKENS, LimitReached, continued, reads_on, why_not
from gateway.continuing.carrying import Carried
from gateway.continuing.joining import ContinuedStream, FailuresHeld, ending
from gateway.continuing.reading import said_in
from gateway.continuing.types import CannotContinue, NotContinued, Said

__all__ = [
    "OPENAI_COMPLETION_TOKENS",
    "CannotContinue",
    "Carried",
    "ContinuedStream",
    "FailuresHeld",
    "LimitReached",
    "NotContinued",
    "Said",
    "continued",
    "ending",
    "reads_on",
    "said_in",
    "why_not",
]
