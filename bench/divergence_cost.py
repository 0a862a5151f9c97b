"""What it costs a request to be held against the earlier prompts of its key: the mean over many, samples included.

    next turn          of a conversation of 33 KB: it continues an earlier prompt
    one question       behind 4 KB of rules and 20 tools, which stay; the question is another in each request
    a time in front    the same rules, without tools, and a time to the second in their second line
    a first turn       of a conversation of 33 KB of which nothing was seen: as bad as it gets

The first `WARM` requests of each are not counted: a gateway looks at the first of a kind more closely. The others are
timed in batches that hold as many samples each, with the collector as a server sets it. What counts is the median
batch; the least says how much the machine was disturbed.
"""

import gc
import random
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median
from typing import Final

from bench.conversations import SIZES, conversation, read_text
from bench.result import Goal
from gateway.divergence import Watch
from gateway.serving.collector import calm_collector
from gateway.types import InferenceRequest, KeyId, Plan, RequestId, Route, Tenant, TenantId, TokenSource
from prefix_index import chain_of, pack
from prefix_index.prompt import PromptView

MOST_US: Final = 20.0
"""A request, of the processor."""
WARM: Final = 64
BATCH: Final = 64
"""Requests, of which the same number is looked at line by line."""
_RULES: Final = "\n".join(f"Rule {number}: what is said there holds for case {number} only." for number in range(65))
_BYTES_A_TOKEN: Final = 4
_TENANT: Final = Tenant(TenantId("bench"), KeyId("bench"), "bench", "00")
_CONVERSATION: Final = SIZES[1]

Asked = tuple[InferenceRequest, Plan]


@dataclass(frozen=True, slots=True)
class Cost:
    """Microseconds of the processor a request, as a mean over a batch: of the median batch, and of the least.

    `has_goal`: whether the promise is about such a request.
    """

    case: str
    requests: int
    median_us: float
    least_us: float
    has_goal: bool = True

    def text(self) -> str:
        """A line for people."""
        return (
            f"held against earlier prompts, {self.case}: {self.median_us:.1f} µs a request, least {self.least_us:.1f}"
        )

    def row(self) -> dict[str, object]:
        """As a row of a result."""
        cpu_us = {"median": round(self.median_us, 1), "min": round(self.least_us, 1)}
        return {
            "divergence": self.case,
            "requests": self.requests,
            "batch_requests": BATCH,
            "batch_mean_cpu_us": cpu_us,
        }


def divergence_costs(requests: int) -> list[Cost]:
    """All cases, each over so many requests."""
    return [
        _cost("next turn", _turns(requests, first=False)),
        _cost("one question", _each(requests, lambda _: _RULES, _tools())),
        _cost("a time in front", _each(requests, _dated, None)),
        _cost("a first turn", _turns(requests, first=True), has_goal=False),
    ]


def divergence_goals(costs: Sequence[Cost]) -> list[Goal]:
    """The dearest of what is usual."""
    worst = max(cost.median_us for cost in costs if cost.has_goal)
    return [Goal("held against earlier prompts, µs of the processor, dearest usual request", worst, MOST_US, "<=")]


def _cost(case: str, asked: Sequence[tuple[Asked, bool]], *, has_goal: bool = True) -> Cost:
    """Requests are seen in turn; those that are marked are timed."""
    watch, spent_ns = Watch(), list[int]()
    often = gc.get_threshold()
    calm_collector()
    for place, ((request, plan), is_timed) in enumerate(asked):
        began_ns = time.process_time_ns()
        looked = watch.look(request, plan)
        if looked is not None:
            watch.note(request, plan, looked, "e@1", 0)
        if is_timed and place >= WARM:
            spent_ns.append(time.process_time_ns() - began_ns)
    gc.unfreeze()
    gc.set_threshold(*often)
    batches = [spent_ns[at : at + BATCH] for at in range(0, len(spent_ns), BATCH)]
    means_us = [sum(batch) / len(batch) / 1000 for batch in batches if len(batch) == BATCH or len(batches) == 1]
    return Cost(case, len(spent_ns), median(means_us), min(means_us), has_goal)


def _turns(requests: int, *, first: bool) -> list[tuple[Asked, bool]]:
    """Conversations of their own; of each its first 33 KB, or the turn after that, is timed."""
    rng, source = random.Random(1), read_text("latin")
    asked: list[tuple[Asked, bool]] = []
    for _ in range(max(requests // 20, 2) + WARM // 2):
        messages: list[dict[str, object]] = [{**message} for message in conversation(source, _CONVERSATION, rng)]
        before, after = (_asked(PromptView(messages=[*some])) for some in (messages[:-2], messages))
        asked += [(before, first), (after, not first)]
    return asked


def _each(requests: int, system: Callable[[int], str], tools: list[object] | None) -> list[tuple[Asked, bool]]:
    return [(_asked(_question(number, system(number), tools)), True) for number in range(requests + WARM)]


def _question(number: int, system: str, tools: list[object] | None) -> PromptView:
    messages: list[dict[str, object]] = [
        {"role": "system", "content": system},
        {"role": "user", "content": f"{number}: how is case {number} to be handled, and by whom?"},
    ]
    return PromptView(messages=messages, tools=tools)


def _dated(number: int) -> str:
    return f"You are a clerk.\nCurrent time: {datetime.fromtimestamp(number * 61, UTC).isoformat()}\n{_RULES}"


def _tools() -> list[object]:
    described = {"type": "object", "properties": {name: {"type": "string"} for name in ("where", "when", "who")}}
    return [
        {
            "type": "function",
            "function": {"name": f"tool_{n}", "description": "What it does. " * 20, "parameters": described},
        }
        for n in range(20)
    ]


def _asked(prompt: PromptView) -> Asked:
    text = "".join(f"{message['role']}{message['content']}" for message in prompt.messages or ()).encode()
    ids = pack(
        array("I", [int.from_bytes(text[at : at + _BYTES_A_TOKEN]) for at in range(0, len(text), _BYTES_A_TOKEN)])
    )
    plan = Plan(chain_of(ids, b"bench", 16), TokenSource.LOCAL, root=b"bench")
    request = InferenceRequest(
        *(RequestId("bench"), _TENANT, Route.CHAT, Route.CHAT.value, "m", False, False, 1),
        prompt,
        *(b"{}", (), 0.0, datetime(2026, 1, 1, tzinfo=UTC)),
    )
    return request, plan
