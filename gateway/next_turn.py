"""After the answer: the engine holds more than the prompt now, and the next turn of the conversation begins there.

    settled --offer--> [ queue: 64 turns, 16 MiB ] --run--> what the answer said            (answer_text)
       |                                                       |
       `--> outcome: why nothing can be learned                v
                                     prompt, answer, next turn as text, as tokens      (prefix_index.prompt.next_turn)
                                                               |
                                                               v
                             chain of what is held and will be asked for --> observe(holder, chain)

Where nobody ever comes back with an answer, none is learned from. Only what is certain is claimed: tokens of a local
tokenizer whose count the engine has confirmed, for the prompt and for the answer. It happens after the client has its
end, in the order of the answers, one at a time, and where it takes long in a thread. It may be dropped, and whatever
goes wrong with it is counted and harms nobody: then the index knows the prompt alone, as it did before.

Cost: about what planning the next turn costs, which finds the tokens of the answer in the cache of segments afterwards.
"""

import asyncio
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from backends import EndpointSnapshot
from billing import Usage
from gateway.answer_text import AnswerText, answer_text
from gateway.conversing import Conversing
from gateway.exchange import Exchange
from gateway.log_lines import LOGGER
from gateway.planning import LOOP_SAFE_BODY_BYTES
from gateway.relay import StreamTee
from gateway.surrogates import UNREADABLE
from gateway.telemetry import Telemetry
from gateway.types import Plan, Route, TokenSource
from prefix_index import TOKEN_BYTES, Chain, NothingHeld, TemplateFailed, TokenIds, UnsupportedContent, chain_of
from prefix_index.prompt import (
    AnswerSaid,
    ModelText,
    PromptView,
    Rendered,
    held_tokens,
    renders_long,
    turn_texts,
)
from prefix_index.segments import Encoding

KiB: Final = 1024
MiB: Final = 1024 * KiB
MOST_WAITING: Final = 64
MOST_WAITING_BYTES: Final = 16 * MiB
"""Bodies of requests and answers that wait; what is decoded of a body takes some times as much."""
MOST_ANSWER_CHARS: Final = 256 * KiB
"""Of one answer, some 64,000 tokens; a longer one is not looked at."""
MOST_NEW_BYTES: Final = 512 * KiB
"""Text that may be tokenised for one turn, half a second of a thread; more is left to the next turn itself."""
LOOP_SAFE_KEPT_BYTES: Final = 64 * KiB
"""A kept answer that may be read on the event loop: under 1 ms as a stream of single tokens."""

TextOf = Callable[[str, list[EndpointSnapshot]], ModelText | None]
"""Tokenizer and template of a model in the way of the engines that serve it; None where there are none here."""
Observe = Callable[[str, Chain], None]
"""Told of a holder and a chain that it holds."""
_Steps = Generator[Encoding, None, TokenIds]
"""Work on an answer that stops wherever text must be tokenised first, and ends with tokens."""


class Outcome(StrEnum):
    """What became of an answer; the others are the kinds of `NothingHeld` (`Unheld`)."""

    OBSERVED = "observed"
    """The index knows more than the prompt now."""
    NO_LOCAL_TOKENS = "no_local_tokens"
    """The tokens of the prompt are not from a tokenizer given here, or not the engine's, or not believed."""
    NO_CONVERSATION = "no_conversation"
    """Requests of this tenant to this model do not go on (`conversing`)."""
    NO_COUNTS = "no_counts"
    """The engine did not count both prompt and output."""
    PROMPT_DIFFERS = "prompt_differs"
    """The engine counted other prompt tokens, or the prompt is another by now: its template writes the time."""
    NO_WHOLE_BLOCK = "no_whole_block"
    """The answer does not complete a block."""
    SEVERAL_CHOICES = "several_choices"
    """There is more than one answer."""
    TOOL_CALLS = "tool_calls"
    """It calls tools, and the engine tells calls parsed: the text that it sampled is not known."""
    NOT_ONLY_TEXT = "not_only_text"
    """It holds refusals, sound or what the server did by itself."""
    NOT_ENDED = "not_ended"
    """It did not end by a token or by the limit of tokens, so its last tokens are not known."""
    UNREADABLE_ANSWER = "unreadable_answer"
    """It is no answer of its dialect, or is compressed."""
    TEMPLATE_FAILED = "template_failed"
    """The template does not take the answer with another turn behind it."""
    TOO_LONG = "too_long"
    """There is more text than this is worth."""
    DROPPED = "dropped"
    """Too many answers waited, or the gateway stopped."""
    FAILED = "failed"
    """A fault of ours; the log has its kind."""


class _Unclaimed(Exception):
    """Nothing is claimed, and why."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.value)
        self.outcome = outcome


@dataclass(frozen=True, slots=True)
class _Turn:
    """What must be kept of an exchange."""

    model: str
    endpoints: list[EndpointSnapshot]
    prompt: PromptView = field(repr=False)
    plan: Plan
    holder: str
    route: Route
    streamed: bool
    kept: bytes = field(repr=False)
    body_bytes: int
    sampled_tokens: int

    @property
    def weight_bytes(self) -> int:
        return self.body_bytes + len(self.kept)

    @property
    def is_long(self) -> bool:
        """Whether all of it belongs in a thread, by the same bounds as planning."""
        return (
            self.body_bytes > LOOP_SAFE_BODY_BYTES or len(self.kept) > LOOP_SAFE_KEPT_BYTES or renders_long(self.prompt)
        )


class NextTurns:
    """Learns from answers what their engines hold for the next turn. `offer` answers, have `run` run, `close` it."""

    def __init__(self, text_of: TextOf, observe: Observe, telemetry: Telemetry) -> None:
        self._text_of = text_of
        self._observe = observe
        self._telemetry = telemetry
        self._waiting: asyncio.Queue[_Turn | None] = asyncio.Queue()
        self._waiting_bytes = 0
        self._closed = False
        self._conversing = Conversing()

    def offer(self, exchange: Exchange) -> None:
        """Take an exchange that was settled as complete. At once and never raises: what can be learned follows later.

        O(messages), but for a copy of the answer's bytes of at most 1 MiB.
        """
        if not self._conversing.goes_on(exchange.request):
            self._telemetry.next_turns(Outcome.NO_CONVERSATION.value).inc()
            return
        try:
            turn = _turn(exchange)
            self._make_room(turn)
        except _Unclaimed as why:
            self._telemetry.next_turns(why.outcome.value).inc()
        else:
            self._waiting.put_nowait(turn)

    async def run(self) -> None:
        """Work on what was offered, one answer at a time, until `close`."""
        while (turn := await self._waiting.get()) is not None:
            self._waiting_bytes -= turn.weight_bytes
            self._telemetry.next_turns(await self._outcome(turn)).inc()

    def close(self) -> None:
        """Let `run` end as soon as it is through with the answer at hand; those that wait are dropped."""
        self._closed = True
        self._waiting.put_nowait(None)

    def _make_room(self, turn: _Turn) -> None:
        waiting_bytes = self._waiting_bytes + turn.weight_bytes
        if self._closed or self._waiting.qsize() >= MOST_WAITING or waiting_bytes > MOST_WAITING_BYTES:
            raise _Unclaimed(Outcome.DROPPED)
        self._waiting_bytes = waiting_bytes

    async def _outcome(self, turn: _Turn) -> str:
        try:
            if self._closed:
                return Outcome.DROPPED.value
            self._observe(turn.holder, await self._chain(turn))
        except _Unclaimed as why:
            return why.outcome.value
        except NothingHeld as why:
            return why.kind
        except (TemplateFailed, UnsupportedContent):
            return Outcome.TEMPLATE_FAILED.value
        except Exception as error:  # noqa: BLE001 - the guard of the loop in `run`
            LOGGER.error("an answer was not learned from", extra={"fields": {"error": type(error).__name__}})
            return Outcome.FAILED.value
        return Outcome.OBSERVED.value

    async def _chain(self, turn: _Turn) -> Chain:
        """The chain of what is held and will be asked for."""
        text = self._text_of(turn.model, turn.endpoints)
        if text is None:
            raise _Unclaimed(Outcome.NO_LOCAL_TOKENS)
        if turn.is_long:
            return await asyncio.to_thread(_chain_at_once, text, turn)
        return _continued(turn.plan, await _in_steps(_tokens(text, turn)))


def _turn(exchange: Exchange) -> _Turn:
    """What there is to learn from, so far as can be told at once. Raises `_Unclaimed`."""
    plan, tee, request = exchange.plan, exchange.tee, exchange.request
    if plan.source is not TokenSource.LOCAL or not plan.exact or not plan.root or tee is None:
        raise _Unclaimed(Outcome.NO_LOCAL_TOKENS)
    sampled_tokens = _sampled_tokens(plan, tee.usage.result().usage)
    kept = tee.kept()
    if kept is None:
        raise _Unclaimed(Outcome.TOO_LONG)
    return _Turn(
        model=request.model,
        endpoints=exchange.endpoints,
        prompt=request.prompt,
        plan=plan,
        holder=exchange.holder,
        route=Route.CHAT if exchange.is_translated else request.route,
        streamed=isinstance(tee, StreamTee),
        kept=kept,
        body_bytes=len(request.body),
        sampled_tokens=sampled_tokens,
    )


def _sampled_tokens(plan: Plan, usage: Usage | None) -> int:
    """How many tokens the engine sampled. Raises `_Unclaimed` where that is not known, or too few for a block."""
    if usage is None or usage.prompt_tokens is None or usage.output_tokens is None:
        raise _Unclaimed(Outcome.NO_COUNTS)
    if usage.prompt_tokens != plan.chain.prompt_tokens:
        raise _Unclaimed(Outcome.PROMPT_DIFFERS)
    if (usage.prompt_tokens + usage.output_tokens - 1) // plan.chain.block_size <= len(plan.chain):
        raise _Unclaimed(Outcome.NO_WHOLE_BLOCK)
    return usage.output_tokens


def _tokens(text: ModelText, turn: _Turn) -> _Steps:
    """The tokens that are held and will be asked for. Raises `_Unclaimed`, `NothingHeld` and what rendering raises."""
    said = _said(turn)
    texts = turn_texts(text, turn.prompt, said)
    asked = yield from _ids(text, turn, texts.asked)
    if len(asked) != TOKEN_BYTES * turn.plan.chain.prompt_tokens:
        raise _Unclaimed(Outcome.PROMPT_DIFFERS)
    answered = yield from _ids(text, turn, texts.answered)
    following = None if texts.following is None else (yield from _ids(text, turn, texts.following))
    return held_tokens(asked, answered, following, sampled_tokens=turn.sampled_tokens, stopped=said.stopped)


def _said(turn: _Turn) -> AnswerSaid:
    try:
        answer = answer_text(turn.route, turn.kept, streamed=turn.streamed)
    except UNREADABLE:
        raise _Unclaimed(Outcome.UNREADABLE_ANSWER) from None
    stopped, fault = answer.stopped, _fault(answer)
    if fault is not None or stopped is None:
        raise _Unclaimed(fault or Outcome.NOT_ENDED)
    return AnswerSaid(answer.text, answer.reasoning, stopped)


def _fault(answer: AnswerText) -> Outcome | None:
    """Why an answer is not looked at."""
    if answer.choices > 1:
        return Outcome.SEVERAL_CHOICES
    if answer.calls:
        return Outcome.TOOL_CALLS
    if answer.other:
        return Outcome.NOT_ONLY_TEXT
    return Outcome.TOO_LONG if answer.chars > MOST_ANSWER_CHARS else None


def _ids(text: ModelText, turn: _Turn, rendered: Rendered) -> _Steps:
    encoding = text.begin_prompt(rendered, add_special_tokens=turn.prompt.add_special_tokens, space=turn.plan.space)
    if encoding.missing_bytes > MOST_NEW_BYTES:
        raise _Unclaimed(Outcome.TOO_LONG)
    yield encoding
    return encoding.finish()


async def _in_steps(steps: _Steps) -> TokenIds:
    """What the steps end with; text that is long is tokenised in a thread, and the loop is let go after each."""
    try:
        while True:
            encoding = next(steps)
            if encoding.is_long:
                await asyncio.to_thread(encoding.compute)
            else:
                encoding.compute()
                await asyncio.sleep(0)
    except StopIteration as end:
        return TokenIds(end.value)


def _chain_at_once(text: ModelText, turn: _Turn) -> Chain:
    steps = _tokens(text, turn)
    try:
        while True:
            next(steps).compute()
    except StopIteration as end:
        return _continued(turn.plan, TokenIds(end.value))


def _continued(plan: Plan, tokens: TokenIds) -> Chain:
    """The chain of `tokens`, which goes on where the prompt's ends. O(tokens). Raises `_Unclaimed`."""
    chain = chain_of(tokens, plan.root, plan.chain.block_size)
    if not chain.hashes.startswith(plan.chain.hashes):
        raise _Unclaimed(Outcome.PROMPT_DIFFERS)
    if len(chain) == len(plan.chain):
        raise _Unclaimed(Outcome.NO_WHOLE_BLOCK)
    return chain
