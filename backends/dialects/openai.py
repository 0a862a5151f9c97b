"""Any other server of the OpenAI protocol: chat completions, a list of models, and nothing else for granted."""

from backends.dialects.types import Dialect

OPENAI = Dialect(name="openai")
