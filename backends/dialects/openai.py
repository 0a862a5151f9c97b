"""Any other server of the OpenAI protocol: chat completions, a list of models, and nothing else for granted."""

from backends.dialects.types import CHAT, COMPLETIONS, NEWER_ROUTES, Dialect
from backends.features import Feature

OPENAI = Dialect(
    name="openai",
    flags=dict.fromkeys(Feature, ""),
    routes=frozenset({CHAT}),
    uncertain_routes=(COMPLETIONS, *NEWER_ROUTES),
)
