"""The proof, always on, that our token ids are the engine's own: our count of a prompt against the one in its usage.

    answer settled ──ours, engine's──> compare ──> per model and shape:  equal equal DIFFERENT equal ...
                                                   window of the last 256 ──> share that agreed (a metric)
                                                   8 different in a row   ──> degraded: local tokens are not believed
                                                   8 equal in a row, or a new engine ──> believed again

A wrong template loses affinity without an error, so it must be seen. It is seen by *shape*: templates are wrong about
tools or about several turns long before they are wrong about everything, and a shape that is right stays in use. The
shapes are few by construction, since they are labels of metrics: four dialects times three yes-or-no questions.

Only local tokens lose trust: ids that the engine itself gave are right even where its count means something else.
Equal counts are no proof of equal ids; `prefixgate check` compares the ids themselves.

Costs: O(messages) for a shape, O(1) for the rest; 256 booleans for each model and shape that occurs.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from itertools import product
from typing import Final

import msgspec

from gateway.log_lines import LOGGER
from gateway.telemetry import Telemetry
from gateway.types import Route, TokenSource
from prefix_index.prompt import PromptView, has_media

WINDOW: Final = 256
"""Comparisons of one model and shape that its ratio looks back on."""

_DIALECTS: Final = {
    Route.CHAT.value: "chat",
    Route.COMPLETIONS.value: "completions",
    Route.MESSAGES.value: "messages",
    Route.RESPONSES.value: "responses",
}
_FLAGS: Final = ("tools", "media", "multi_turn")
_ANSWERING_ROLES: Final = frozenset({"assistant", "tool"})


def shape_of(route: str, prompt: PromptView) -> str:
    """The kind of a request, such as `chat+tools+multi_turn`: one of `SHAPES`, whatever the client sent.

    `multi_turn`: an answer is part of the prompt. `media`: a part that is not text. A route of another dialect counts
    as the one its prompt looks like. O(messages and their parts).
    """
    messages = prompt.messages or []
    dialect = _DIALECTS.get(route) or ("completions" if prompt.messages is None else "chat")
    answers = (
        bool(prompt.tools),
        has_media(prompt),
        any(_is_answer(message.get("role")) for message in messages),
    )
    return _shape(dialect, answers)


@cache
def _shape(dialect: str, answers: tuple[bool, ...]) -> str:
    return "+".join((dialect, *(flag for flag, answer in zip(_FLAGS, answers, strict=True) if answer)))


SHAPES: Final = frozenset(
    _shape(dialect, answers) for dialect in _DIALECTS.values() for answers in product((False, True), repeat=len(_FLAGS))
)
"""Every shape there is."""


def _is_answer(role: object) -> bool:
    return isinstance(role, str) and role in _ANSWERING_ROLES


class ParityResult(msgspec.Struct, frozen=True):
    """One comparison of token counts: of a prompt that was tokenised exactly, and whose usage the engine reported."""

    at: datetime
    request_id: str
    endpoint_id: str
    model: str
    shape: str
    source: TokenSource
    ours_tokens: int
    engine_tokens: int

    @property
    def equal(self) -> bool:
        """Whether both counted the same."""
        return self.ours_tokens == self.engine_tokens

    @property
    def difference_tokens(self) -> int:
        """How many tokens we counted too many; negative where too few."""
        return self.ours_tokens - self.engine_tokens


@dataclass(slots=True)
class _Record:
    """What is remembered of one model and shape."""

    window: deque[bool] = field(default_factory=lambda: deque(maxlen=WINDOW))
    equal_in_window: int = 0
    run: int = 0
    """Local comparisons of one outcome in a row: equal above zero, different below."""
    degraded: bool = False

    def add(self, equal: bool) -> None:
        if len(self.window) == WINDOW:
            self.equal_in_window -= self.window[0]
        self.window.append(equal)
        self.equal_in_window += equal

    def extend_run(self, equal: bool) -> None:
        if equal:
            self.run = max(self.run, 0) + 1
        else:
            self.run = min(self.run, 0) - 1


class ParityBook:
    """All comparisons of this process. One loop's, no I/O; models must be those of the fleet, shapes `shape_of`'s.

    `run_to_degrade` is how many local comparisons of one outcome in a row change the trust; `ring` how many
    differences are kept to look at.
    """

    def __init__(self, telemetry: Telemetry, run_to_degrade: int = 8, ring: int = 256) -> None:
        self._telemetry = telemetry
        self._run_to_degrade = run_to_degrade
        self._records: dict[tuple[str, str], _Record] = {}
        self._differences: deque[ParityResult] = deque(maxlen=ring)

    def compare(self, result: ParityResult) -> None:
        """Take one comparison into account: metrics, the window, the trust. O(1)."""
        model, shape, equal = result.model, result.shape, result.equal
        record = self._records.get((model, shape))
        if record is None:
            record = self._records[model, shape] = _Record()
        record.add(equal)
        self._telemetry.token_comparisons(model, shape, "equal" if equal else "different").inc()
        self._telemetry.token_parity_ratio(model, shape).set(record.equal_in_window / len(record.window))
        if not equal:
            self._differences.append(result)
        if result.source is TokenSource.LOCAL:
            record.extend_run(equal)
            self._judge(record, result)

    def is_degraded(self, model: str, shape: str) -> bool:
        """Whether local tokens of this kind of request must not be believed. O(1)."""
        record = self._records.get((model, shape))
        return record is not None and record.degraded

    def degraded(self) -> dict[str, list[str]]:
        """The shapes whose local tokens are not believed, in order, by model."""
        found: dict[str, list[str]] = {}
        for (model, shape), record in sorted(self._records.items(), key=lambda item: item[0]):
            if record.degraded:
                found.setdefault(model, []).append(shape)
        return found

    def trust_again(self, model: str) -> None:
        """An engine of this model is another one now: what spoke against our tokens no longer does. O(32)."""
        for record in self._of(model):
            record.degraded = False
            record.run = 0

    def recent(self) -> list[ParityResult]:
        """The latest differences, newest first; counts and names, no text."""
        return list(reversed(self._differences))

    def _of(self, model: str) -> Iterator[_Record]:
        return (self._records[key] for shape in SHAPES if (key := (model, shape)) in self._records)

    def _judge(self, record: _Record, result: ParityResult) -> None:
        if not record.degraded and record.run <= -self._run_to_degrade:
            record.degraded = True
            LOGGER.warning("local tokens are not the engine's", extra={"fields": _fields(result, -record.run)})
        elif record.degraded and record.run >= self._run_to_degrade:
            record.degraded = False
            LOGGER.warning("local tokens are the engine's again", extra={"fields": _fields(result, record.run)})


def _fields(result: ParityResult, in_a_row: int) -> dict[str, object]:
    return {
        "model": result.model,
        "shape": result.shape,
        "endpoint": result.endpoint_id,
        "request_id": result.request_id,
        "ours_tokens": result.ours_tokens,
        "engine_tokens": result.engine_tokens,
        "in_a_row": in_a_row,
    }
