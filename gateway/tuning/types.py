"""The nouns of a sweep.

    Setting ──> Row: Speed, Quality, memory      one that failed: a Row with the reason, and none of the three

A row has speed only where it has quality: there is no way to write down the one without the other. What nobody told is
None, never 0.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct, field

Value = str | int | float | bool | list[str]
"""Of a placeholder. A list stands for several words of a command line, an empty one for none."""

Token = int | str
"""Of an answer: the engine's own number, or a word where it tells none."""

QUALITY_AXES: Final = frozenset({"perplexity", "agreement", "tasks"})
"""Figures of quality, by which settings are held against each other."""

FORMAT: Final = 1
"""Of rows. Raised where figures of an older one cannot be held against those of a newer one."""

KiB: Final = 1024
MiB: Final = 1024 * KiB


class Spread(Struct, frozen=True):
    """Quantiles in seconds."""

    p50: float
    p90: float
    p99: float


class Speed(Struct, frozen=True):
    """Under the sweep's load. `failed`: requests that were not answered whole."""

    requests: int
    failed: int
    requests_per_s: float
    output_tokens_per_s: float | None
    ttft_s: Spread | None
    itl_s: Spread | None
    hit_share: float | None = None


class Reading(Struct, frozen=True):
    """How well the model foresees the held text: the natural logarithm of the probability of each token but the first,
    given those before. `text_bytes` are those of the whole text."""

    logprobs: list[float]
    text_bytes: int
    method: str


class Answer(Struct, frozen=True):
    """A greedy answer. `again`: the same question once more, where it was asked twice."""

    tokens: list[Token]
    again: list[Token] | None = None


class Tasks(Struct, frozen=True):
    """Of `of` tasks: the answer was one of the right ones (`exact`), or had one of them in it, whole words (`said`)."""

    exact: int
    said: int
    of: int


class Quality(Struct, frozen=True):
    """What one at a time was answered. `reading` is None where the engine tells no probabilities of a prompt, `tasks`
    where there are none; `unit` is that of the answers' tokens."""

    answers: list[Answer]
    unit: str
    tasks: Tasks | None
    reading: Reading | None
    unread: str | None = None

    def __post_init__(self) -> None:
        if not self.answers and self.reading is None:
            raise ValueError("quality without an answer or a text is none")


class Row(Struct, frozen=True):
    """A setting, and what became of it: speed and quality, or why it `failed`.

    `key` names all that its figures depend on; `at` is when it was begun, in UTC, `seconds` how long all of it took.
    `ready_s` is how long the engine took to start, `memory_bytes` the most that its processes held, `gpu_bytes` what
    they held on GPUs at the end, all None of an address. `engine`, `version` and `kv_tokens`, the room of its KV cache,
    are as it says.
    """

    key: str
    setting: dict[str, Value]
    at: str
    seconds: float
    failed: str | None = None
    speed: Speed | None = None
    quality: Quality | None = None
    ready_s: float | None = None
    memory_bytes: int | None = None
    gpu_bytes: int | None = None
    kv_tokens: int | None = None
    engine: str | None = None
    version: str | None = None
    notes: list[str] = field(default_factory=list)
    format: int = FORMAT

    def __post_init__(self) -> None:
        if (self.speed is None) != (self.quality is None):
            raise ValueError("a row has speed and quality, or neither")
        if (self.failed is None) == (self.speed is None):
            raise ValueError("a row has figures, or a reason why it has none")

    @property
    def name(self) -> str:
        """The setting in one line."""
        return named(self.setting)


def named(setting: Mapping[str, Value]) -> str:
    """A setting in one line."""
    return " ".join(f"{key}={shown(value)}" for key, value in setting.items())


def shown(value: Value) -> str:
    """A value as it is read in a table."""
    if isinstance(value, list):
        return " ".join(value) or "-"
    return ("true" if value else "false") if isinstance(value, bool) else str(value)
