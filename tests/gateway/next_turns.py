"""Exchanges whose answers are whole, and what is learned from them: `Learner`."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from gateway.edge.reading import Arrival, read_request
from gateway.edge.upstream import outgoing
from gateway.exchange import Exchange
from gateway.next_turn import NextTurns, Outcome
from gateway.telemetry import Telemetry
from gateway.types import InferenceRequest, KeyId, Plan, RequestId, Route, Tenant, TenantId, TokenSource
from prefix_index import Chain, Match, TokenIds, chain_of
from prefix_index.prompt import ModelText, PromptView, Unheld

ROOT = b"root"
BLOCK = 16
HOLDER = "e0@1"
MODEL = "tiny"
TENANT = Tenant(TenantId("t"), KeyId("k"), "g", "salt")


def read(body: Mapping[str, object], route: Route = Route.CHAT) -> InferenceRequest:
    """A client's request as the gateway understands it."""
    arrival = Arrival(RequestId("r"), TENANT, route, route.value, (), 0.0, datetime.now(UTC))
    return read_request(arrival, json.dumps({"model": MODEL, **body}).encode())


def ids(text: ModelText, view: PromptView) -> TokenIds:
    """The tokens of a prompt."""
    encoding = text.begin(view)
    encoding.compute()
    return encoding.finish()


def planned(text: ModelText, view: PromptView) -> Plan:
    """A plan as the planner makes it of local tokens."""
    return Plan(chain_of(ids(text, view), ROOT, BLOCK), TokenSource.LOCAL, root=ROOT)


def answered(
    request: InferenceRequest, plan: Plan, answer: bytes, *, streamed: bool = False, translated: bool = False
) -> Exchange:
    """An exchange whose answer has passed, in pieces, as the pipeline leaves it."""
    exchange = Exchange(request, plan, Match(), [])
    exchange.holder = HOLDER
    exchange.outgoing = outgoing(request, natively=not translated, inject_salt=False)
    headers = ((b"content-type", b"text/event-stream" if streamed else b"application/json"),)
    outlet = exchange.answer_begins(200, headers, streaming=streamed)
    for start in range(0, len(answer), 100):
        outlet.feed(answer[start : start + 100])
    outlet.held()
    return exchange


def usage(prompt_tokens: int, output_tokens: int) -> dict[str, int]:
    """As chats report it."""
    return {"prompt_tokens": prompt_tokens, "completion_tokens": output_tokens}


def chat_answer(content: object, counts: object, finish: str = "stop", **more: object) -> bytes:
    """A plain chat completion."""
    message = {"role": "assistant", "content": content, **more}
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return json.dumps({"choices": [choice], "usage": counts}).encode()


@dataclass
class Learner:
    """What is learned from answers to a model's prompts. `observed` are the chains of holders, in order."""

    text: ModelText | None
    observed: list[tuple[str, Chain]] = field(default_factory=list)
    telemetry: Telemetry = field(default_factory=Telemetry)
    turns: NextTurns = field(init=False)

    def __post_init__(self) -> None:
        self.turns = NextTurns(
            lambda *_: self.text, lambda holder, chain: self.observed.append((holder, chain)), self.telemetry
        )

    def counted(self, outcome: Outcome | Unheld) -> float:
        """How many answers had this outcome."""
        labels = {"outcome": outcome.value}
        return self.telemetry.registry.get_sample_value("prefixgate_next_turns_total", labels) or 0.0

    def outcomes(self) -> dict[str, float]:
        """All outcomes that occurred."""
        return {one.value: count for one in (*Outcome, *Unheld) if (count := self.counted(one))}

    async def learn(self, *exchanges: Exchange) -> dict[str, float]:
        """Offer answers, work on them and stop; the outcomes."""
        for exchange in exchanges:
            self.turns.offer(exchange)
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            group.create_task(self.turns.run())
            while sum(self.outcomes().values()) < len(exchanges):
                await asyncio.sleep(0.001)
            self.turns.close()
        return self.outcomes()
