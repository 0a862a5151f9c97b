"""When an endpoint dies in the middle of an answer: whether another one goes on with it, and which.

    bytes pass ──died──> what has the client got? ──> may it be gone on with? ──no──> as ever: told, or cut
                                                        │   (`NotContinued` names why)
                                                        ├── only the end is missing ──> the end, by us
                                                        └── yes ──> prompt + text: planned, matched, dispatched as any

Dead is an endpoint whose answer broke off, fell silent (`limits.idle_s`), or that said itself that it failed. Where the
client has got nothing yet, the request is sent again as it is. A client that leaves meanwhile finds all as in any
request: the exchange is settled as cut, by what was relayed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any, Final

from backends import BackendError, EndpointSnapshot, NoEndpoint, UpstreamError
from billing import PREFILLED
from gateway.answer_head import is_event_stream
from gateway.continuing import (
    OPENAI_COMPLETION_TOKENS,
    CannotContinue,
    Carried,
    LimitReached,
    NotContinued,
    Said,
    continued,
    ending,
    reads_on,
    said_in,
    why_not,
)
from gateway.errors import GatewayError, ModelNotFound, as_gateway_error
from gateway.exchange import CUT, Exchange, FirstBytes
from gateway.pipeline_parts import Parts
from gateway.relay import StreamTee
from gateway.timing import Marks
from gateway.types import InferenceRequest, Route
from gateway.wire import ClientStream
from prefix_index import TemplateFailed, UnsupportedContent
from prefix_index.prompt import PromptView

COUNTING_DEADLINE_S: Final = 1.5
"""Patience with whoever counts the tokens of the text: a client is waiting for its next word."""
_GOES_ON: Final = frozenset({"vllm", "sglang", "reference"})
"""Engines that take `continue_final_message`."""
_OPENAI_LIMIT: Final = frozenset({"vllm", "sglang", "trtllm", "reference"})
"""Engines that write 16 tokens where a completion names no limit."""
_THOUGHTS: Final = "think>"
"""In a text: thoughts that were not told apart; templates take them out."""
_BROKE_OFF: Final = "broke_off"

Dispatch = Callable[[Exchange, frozenset[str]], Awaitable[FirstBytes]]
"""Sends an exchange to an endpoint that is none of these; as `Dispatcher.dispatch`."""


class Continuer:
    """One per process; keeps no state of its own. `at_most`: how often one answer may be gone on with."""

    def __init__(self, parts: Parts, dispatch: Dispatch, at_most: int) -> None:
        self._parts = parts
        self._dispatch = dispatch
        self._at_most = at_most
        self._metrics = parts.telemetry.continuation

    async def passed(
        self, exchange: Exchange, passing: Coroutine[Any, Any, None], client: ClientStream
    ) -> FirstBytes | None:
        """Wait until an answer has passed, as far as it goes. What goes on with it, where its endpoint died; None where
        it is at its end. Raises what `passing` raises where nobody goes on."""
        death: UpstreamError | None = None
        try:
            await passing
        except UpstreamError as error:
            death = error
        tee = exchange.tee
        if isinstance(tee, StreamTee) and (exchange.http_status or 0) < 400:
            try:
                if death is not None or _broke_off(exchange, tee):
                    return await self._go_on(exchange, tee, death, head_sent=client.started)
            except CannotContinue as why:
                self._metrics.died(why.reason.value).inc()
        if death is not None:
            raise death
        return None

    async def _go_on(
        self, exchange: Exchange, tee: StreamTee, death: UpstreamError | None, *, head_sent: bool
    ) -> FirstBytes | None:
        """Raises `CannotContinue`."""
        before = exchange.carried
        exchange.release()
        request = exchange.request if before is None else before.request
        carried = Carried(
            number=1 if before is None else before.number + 1,
            request=request,
            said=Said(),
            tee=tee,
            prompt_tokens=exchange.plan.prompt_tokens if before is None else before.prompt_tokens,
            cached_tokens=exchange.expected_cached_tokens if before is None else before.cached_tokens,
            relayed_tokens=0,
            translator=exchange.translator,
            head_sent=head_sent,
        )
        try:
            if head_sent:
                carried, request = await self._rest(exchange, carried, tee)
        except _OnlyTheEnd as end:
            exchange.attempt_ends(self._parts.clocks.wall(), _outcome(death))
            tee.end_here(end.events)
            self._metrics.died("ended").inc()
            return None
        if carried.number > self._at_most:
            raise CannotContinue(NotContinued.BOUND)
        return await self._sent(exchange, carried, request, death)

    async def _rest(self, exchange: Exchange, carried: Carried, tee: StreamTee) -> tuple[Carried, InferenceRequest]:
        """What the client has got, and the request for the rest. Raises `CannotContinue`, or `_OnlyTheEnd`."""
        request, before = carried.request, exchange.carried
        reason, kept = why_not(request, translated=exchange.is_translated), tee.kept()
        if reason is not None:
            raise CannotContinue(reason)
        if tee.inside_event:
            raise CannotContinue(NotContinued.TORN_EVENT)
        if kept is None:
            raise CannotContinue(NotContinued.TOO_LONG)
        since = await asyncio.to_thread(said_in, kept)
        said = since if before is None else before.said.then(since)
        if since.finished and tee.usage.seen:
            raise _OnlyTheEnd(ending(said, None, limit_reached=False))
        tokens = await self._count(exchange, said)
        carried = replace(carried, said=said, relayed_tokens=tokens)
        limit = self._usual_limit(exchange)
        asked = None if since.finished else await asyncio.to_thread(_continued, request, said, tokens, limit)
        if asked is None:
            since_tokens = tokens if before is None else tokens - before.relayed_tokens
            usage = _usage(exchange, since_tokens) if _tells_usage(exchange) else None
            raise _OnlyTheEnd(ending(said, usage, limit_reached=not since.finished))
        if said.text and request.route is not Route.COMPLETIONS:
            await self._see_template(exchange, request.prompt, asked.prompt, said)
        return carried, asked

    async def _count(self, exchange: Exchange, said: Said) -> int:
        """Tokens of the text that the client has: as its engine told them, else by our tokenizer, or an engine's."""
        if not said.text:
            return 0
        if said.token_ids:
            return len(said.token_ids)
        planner, model = self._parts.planner, exchange.request.model
        asked = [one for one in self._serving(exchange) if one.id not in _tried(exchange)]
        asked.sort(key=lambda one: one.id == exchange.endpoint_id)  # who has just died comes last
        try:
            async with asyncio.timeout(COUNTING_DEADLINE_S):
                tokens = await planner.count_tokens(model, said.text, asked)
        except (TimeoutError, UnsupportedContent):
            tokens = None
        if tokens is None:
            raise CannotContinue(NotContinued.UNCOUNTED)
        return tokens

    async def _see_template(self, exchange: Exchange, asked: PromptView, view: PromptView, said: Said) -> None:
        """Raises `CannotContinue` where by the chat template the text would not stand behind what was asked, or
        might not."""
        model = self._parts.planner.text_of(exchange.request.model, exchange.endpoints)
        try:
            if model is not None and model.tokenizer is not None:
                before = await asyncio.to_thread(model.prompt_of, asked)
                if reads_on(before, await asyncio.to_thread(model.prompt_of, view), said.text):
                    return
                raise CannotContinue(NotContinued.TEMPLATE)
        except TemplateFailed:
            raise CannotContinue(NotContinued.TEMPLATE) from None
        except UnsupportedContent:
            pass  # only the engine renders this: what is below holds
        if said.text != said.text.strip() or _THOUGHTS in said.text:
            raise CannotContinue(NotContinued.TEMPLATE)

    async def _sent(
        self, exchange: Exchange, carried: Carried, request: InferenceRequest, death: UpstreamError | None
    ) -> FirstBytes:
        """The answer of another endpoint, whose first bytes are here. Raises `CannotContinue`."""
        parts = self._parts
        endpoints = self._serving(exchange)
        without = self._without(exchange, carried, endpoints)
        others = [one for one in endpoints if one.id not in without]
        if not others:
            raise CannotContinue(NotContinued.NOBODY_LEFT)
        plan, marks = exchange.plan, request.marks
        request = replace(request, marks=Marks())  # the steps of the request are those until its first byte
        if request.prompt is not exchange.request.prompt:
            plan = await parts.planner.plan(request, endpoints, plan.chain.block_size, tokenizers=others)
        match = await parts.index.match(plan.chain)
        relayed_before = 0 if exchange.carried is None else exchange.carried.relayed_tokens
        self._died(exchange, death, carried.relayed_tokens - relayed_before)
        before = exchange.by_who_answers()
        exchange.goes_on(carried, request, plan, match, parts.clocks.monotonic())
        try:
            answer = await self._answer_of_another(exchange, without)
        except BaseException:
            exchange.attempt_ends(parts.clocks.wall(), CUT)  # where the client has left
            parts.settler.tell_index(exchange)
            exchange.nobody_went_on(before)
            raise
        exchange.request = replace(request, marks=marks)
        self._metrics.died("continued").inc()
        self._metrics.tokens("relayed").inc(carried.relayed_tokens)
        self._metrics.tokens("again").inc(0 if exchange.decision is None else exchange.decision.work_tokens)
        return answer

    async def _answer_of_another(self, exchange: Exchange, without: frozenset[str]) -> FirstBytes:
        """Raises `CannotContinue` where nobody answers, or not with a stream."""
        parts = self._parts
        try:
            if parts.turns is not None and parts.turns.are_crowded():
                await parts.turns.come_again(exchange, without)
            response, chunk = await self._dispatch(exchange, without)
        except (BackendError, GatewayError):
            raise CannotContinue(NotContinued.NOBODY_LEFT) from None
        except asyncio.CancelledError:
            parts.attempts.left(exchange.under_way)
            raise
        if response.status != 200 or not is_event_stream(response.headers):
            await response.aclose()
            exchange.attempt_ends(parts.clocks.wall(), f"status_{response.status}")
            raise CannotContinue(NotContinued.REFUSED)
        return response, chunk

    def _serving(self, exchange: Exchange) -> list[EndpointSnapshot]:
        """Who serves the model by now, up or down: a stream may outlast those who did when it began."""
        try:
            return self._parts.fleet.serving(exchange.request.model)
        except (NoEndpoint, ModelNotFound):
            return []

    def _died(self, exchange: Exchange, death: UpstreamError | None, wrote_tokens: int) -> None:
        """The attempt is over: what it says to the index."""
        parts = self._parts
        exchange.attempt_ends(parts.clocks.wall(), _outcome(death), wrote_tokens)
        parts.settler.tell_index(exchange)

    def _without(self, exchange: Exchange, carried: Carried, endpoints: list[EndpointSnapshot]) -> frozenset[str]:
        """Endpoints that died or failed in this exchange, and those that cannot go on with what was said."""
        without = _tried(exchange) | {exchange.endpoint_id}
        if carried.said.text and exchange.request.route is not Route.COMPLETIONS:
            without |= {one.id for one in endpoints if _engine(one) not in _GOES_ON}
        if carried.head_sent and carried.translator is not None:
            fleet, request = self._parts.fleet, exchange.request
            without |= {one.id for one in endpoints if fleet.speaks(one.id, request)}
        return frozenset(without)

    def _usual_limit(self, exchange: Exchange) -> int | None:
        if exchange.request.route is not Route.COMPLETIONS:
            return None
        engines = {_engine(one) for one in exchange.endpoints if one.id == exchange.endpoint_id}
        return OPENAI_COMPLETION_TOKENS if engines <= _OPENAI_LIMIT else None


class _OnlyTheEnd(Exception):
    """All that was missing are these events."""

    def __init__(self, events: bytes) -> None:
        super().__init__("only the end is missing")
        self.events = events


def _broke_off(exchange: Exchange, tee: StreamTee) -> bool:
    """Whether a stream that ended by itself is not whole: of other dialects than that of chats we cannot tell."""
    is_chat = exchange.is_translated or exchange.request.route in (Route.CHAT, Route.COMPLETIONS)
    return is_chat and (tee.failed or not (tee.complete or tee.usage.seen))


def _outcome(death: UpstreamError | None) -> str:
    return _BROKE_OFF if death is None else as_gateway_error(death).code


def _continued(request: InferenceRequest, said: Said, tokens: int, limit: int | None) -> InferenceRequest | None:
    """As `continued`, None where the limit is reached; what cannot be walked through is unreadable."""
    try:
        return continued(request, said, tokens, limit)
    except LimitReached:
        return None
    except (GatewayError, RecursionError, ValueError, IndexError):
        raise CannotContinue(NotContinued.UNREADABLE) from None


def _tried(exchange: Exchange) -> set[str]:
    """Who failed or died in this exchange, so far; not who computed a prompt for another one."""
    return {attempt.endpoint_id for attempt in exchange.attempts if attempt.outcome != PREFILLED}


def _engine(endpoint: EndpointSnapshot) -> str | None:
    return None if endpoint.facts is None else endpoint.facts.engine


def _tells_usage(exchange: Exchange) -> bool:
    return exchange.request.client_wants_usage or exchange.is_translated


def _usage(exchange: Exchange, output_tokens: int) -> dict[str, Any] | None:
    """The usage of the attempt that died, by our own count; None where its prompt was not counted."""
    prompt, cached = exchange.plan.prompt_tokens, exchange.expected_cached_tokens
    if prompt is None:
        return None
    details = None if cached is None else {"cached_tokens": cached}
    counts = {"prompt_tokens": prompt, "completion_tokens": output_tokens, "total_tokens": prompt + output_tokens}
    return {**counts, "prompt_tokens_details": details}
