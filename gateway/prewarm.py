"""What an endpoint that came back empty is given to compute before its users ask for it. Off unless configured.

    complete answer ──keep──> book: bodies of the prompts whose beginnings saved most lately      bounded, in memory
    new generation of e ────> queue ──> run: the most valuable, one at a time, max_tokens 1 ──> e
                                        reserved as load; the index learns what was computed

Only a body makes an engine compute a prefix, so bodies must be kept: those that went to an engine, with the salt of
their share group, and without headers. They are never written anywhere. What is sent is the gateway's own work: no
tenant is billed, and the ledger does not have it.

The worth of a prefix is the tokens that it saved, fading with the requests of all. One body stands for a prefix: the
shortest, since the rest of it is computed in vain. Costs: `keep` O(MOST_KEPT), and a copy of the body where it is kept.
"""

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from backends import Deadlines, EndpointId, UpstreamClient, UpstreamError, UpstreamRequest
from gateway.edge.splice import add_fields, cut_fields
from gateway.edge.upstream import engine_headers
from gateway.errors import GatewayError
from gateway.exchange import Clocks, Exchange
from gateway.fleet import Fleet
from gateway.ids import new_request_id
from gateway.log_lines import LOGGER
from gateway.ranks import rank_headers
from gateway.receipts import Receipt, Receipts
from gateway.relay import PlainTee
from gateway.served_models import serves
from gateway.telemetry import Telemetry
from gateway.types import Plan, Route
from prefix_index import HASH_BYTES, Match, SharedIndex

MOST_KEPT: Final = 64
MOST_BODY_BYTES: Final = 1 << 20
WINDOW_REQUESTS: Final = 2048
"""After so many requests of all, what was saved once counts 1/e."""
MOST_SHARE: Final = 0.5
"""Of an endpoint's cache, what is filled at most: the rest is for who comes."""
UP_S: Final = 60.0
"""How long an endpoint whose engine was just seen to be another may take until it is known what it serves."""
LOOK_S: Final = 0.05
_REFUSALS: Final = frozenset({400, 404, 413, 422})
"""Statuses that are about the prompt: it is longer than this engine's context, or asks for what it has no more."""
_MS: Final = 1000
_ROUTES: Final = frozenset({Route.CHAT.value, Route.COMPLETIONS.value})
_OURS: Final = {"max_tokens": b"1", "stream": b"false"}
_CUT: Final = frozenset(
    {*_OURS, "max_completion_tokens", "min_tokens", "stream_options", "n", "best_of", "logprobs", "top_logprobs"}
)
"""Engines refuse some of these without others: `top_logprobs` without `logprobs`, `min_tokens` above `max_tokens`."""


@dataclass(slots=True)
class Kept:
    """One prefix, named by the hash of its last block, and the body that stands for it; `saved_tokens` as of request
    number `at`. `salted`: the body went to an engine that is given salts, and has one. `engine` is in whose words it
    names its adapter, where the model is one."""

    name: bytes
    model: str
    path: str
    body: bytes = field(repr=False)
    plan: Plan = field(repr=False)
    salted: bool
    saved_tokens: float
    at: int
    engine: str | None = None


class PrewarmBook:
    """The prefixes that saved most lately, with a body each. Plain calls, bounded."""

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._most = most
        self._kept: dict[bytes, Kept] = {}
        self._number = 0

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, kept: Kept) -> None:
        """A prompt whose beginning of that name saved so many tokens; `at` is set here."""
        self._number += 1
        kept.at = self._number
        if len(kept.body) > MOST_BODY_BYTES:
            return
        known = self._kept.get(kept.name)
        if known is not None:
            kept.saved_tokens += self._worth(known)
            if len(known.body) <= len(kept.body):
                kept.body, kept.path, kept.plan, kept.salted = known.body, known.path, known.plan, known.salted
                kept.engine = known.engine
        elif len(self._kept) >= self._most:
            least = min(self._kept.values(), key=self._worth)
            if self._worth(least) > kept.saved_tokens:
                return
            del self._kept[least.name]
        self._kept[kept.name] = kept

    def best(self, most: int, is_for: Callable[[Kept], bool]) -> list[Kept]:
        """The most valuable, best first; none whose prefix is a part of a prompt that is among them anyway."""
        found: list[Kept] = []
        for kept in sorted(self._kept.values(), key=self._worth, reverse=True):
            if len(found) == most:
                break
            if is_for(kept) and not any(_has(other.plan.chain.hashes, kept.name) for other in found):
                found.append(kept)
        return found

    def _worth(self, kept: Kept) -> float:
        return kept.saved_tokens * math.exp((kept.at - self._number) / WINDOW_REQUESTS)


@dataclass(frozen=True, slots=True)
class PrewarmParts:
    """The objects a prewarmer works with."""

    fleet: Fleet
    index: SharedIndex
    receipts: Receipts
    client: UpstreamClient
    telemetry: Telemetry
    clocks: Clocks
    deadlines: Deadlines
    inject_salt: bool


class Prewarmer:
    """Keeps bodies, and sends the best `prefixes` of them to who came back. With 0 it does neither."""

    def __init__(self, parts: PrewarmParts, prefixes: int) -> None:
        self._parts = parts
        self._prefixes = prefixes
        self._turn = 0
        self._generations: dict[EndpointId, int] = {}
        self._back: asyncio.Queue[tuple[EndpointId, int, EndpointId | None]] = asyncio.Queue()
        self.book = PrewarmBook()

    def keep(self, exchange: Exchange) -> None:
        """A request was answered completely: if its beginning was cached, its body may be worth keeping."""
        if self._prefixes:
            kept = self._kept_of(exchange)
            if kept is not None:
                self.book.keep(kept)

    def new_generation(self, endpoint_id: EndpointId, generation: int) -> None:
        """An endpoint's cache is another one now, or was seen for the first time."""
        self._generations[endpoint_id] = generation
        if len(self.book):
            self._back.put_nowait((endpoint_id, generation, None))

    def hand_over(self, endpoint_id: EndpointId, heir: EndpointId) -> int:
        """Have `heir` compute the most valuable prefixes that an endpoint holds, in the background; how many are looked
        at. 0 where no bodies are kept."""
        if not len(self.book):
            return 0
        self._back.put_nowait((heir, self._generations.setdefault(heir, 0), endpoint_id))
        return len(self.book.best(self._prefixes, lambda one: self._is_for(one, heir)))

    def forget(self) -> None:
        """The bodies that are kept have salts by which nobody asks any more."""
        self.book = PrewarmBook()

    def removed(self, endpoint_id: str) -> None:
        """An endpoint is none of the fleet any more."""
        self._generations.pop(EndpointId(endpoint_id), None)

    async def run(self) -> None:
        """Warm who comes back, each beside the others and one request at a time, until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                group.create_task(self._warm(*await self._back.get()))

    async def _warm(self, endpoint_id: EndpointId, generation: int, heir_of: EndpointId | None) -> None:
        sent = 0
        try:
            async with asyncio.timeout(UP_S):
                while self._generations.get(endpoint_id) == generation and not self._is_up(endpoint_id):  # noqa: ASYNC110
                    await asyncio.sleep(LOOK_S)  # the registry has no event for it
            room_tokens = self._room_tokens(endpoint_id)
            for kept in self.book.best(self._prefixes, lambda one: self._is_for(one, endpoint_id)):
                room_tokens -= kept.plan.chain.prompt_tokens
                match = await self._parts.index.match(kept.plan.chain)
                if room_tokens < 0 or self._generations.get(endpoint_id) != generation:
                    break
                if heir_of is not None and not self._holds(heir_of, kept, match):
                    continue
                outcome = await self._send(kept, endpoint_id, match)
                self._parts.telemetry.prewarm.requests(endpoint_id, outcome).inc()
                if outcome == "failed":
                    break
                sent += outcome == "computed"
        except TimeoutError:
            pass  # it is down again
        except Exception as error:  # noqa: BLE001 - the guard of the loop in `run`
            LOGGER.error("an endpoint was not warmed", extra={"fields": {"error": type(error).__name__}})
        LOGGER.info("endpoint warmed", extra={"fields": {"endpoint": endpoint_id, "prefixes": sent}})

    async def _send(self, kept: Kept, endpoint_id: EndpointId, match: Match[str]) -> str:
        """Have one prompt computed: `held` where somebody was faster, else `computed` or `failed`, or `refused` where
        the engine has something against this prompt."""
        parts, chain = self._parts, kept.plan.chain
        if self._holds(endpoint_id, kept, match):
            return "held"
        self._turn += 1
        rank = parts.fleet.rank_at(endpoint_id, self._turn)
        sent = parts.fleet.sent(endpoint_id, kept.plan, match, parts.clocks.monotonic(), rank)
        held = max(sent.confirmed_blocks, sent.speculative_blocks)
        tokens = max(chain.prompt_tokens - held * chain.block_size, 0)
        seat = parts.fleet.reserve(endpoint_id, tokens, 1, rank)
        outcome, computed_tokens = "failed", 0
        try:
            seat.take(sent.holder, chain)
            parts.receipts.dispatched(sent, tokens)
            if parts.fleet.adapters is not None:
                parts.fleet.adapters.used(kept.model, sent.place)
            outcome, computed_tokens = await self._answer(kept, endpoint_id, rank)
        finally:
            seat.release()
            began = outcome == "computed"
            if began:
                parts.receipts.first_token(sent)
            parts.receipts.ended(Receipt(sent, began))
        parts.telemetry.prewarm.tokens(endpoint_id).inc(computed_tokens)
        return outcome

    async def _answer(self, kept: Kept, endpoint_id: EndpointId, rank: int | None) -> tuple[str, int]:
        """What came of it, and the tokens that the engine says it computed of the prompt."""
        parts, deadlines = self._parts, self._parts.deadlines
        headers, chosen = ((b"content-type", b"application/json"),), rank_headers(rank)
        request_id = new_request_id(int(parts.clocks.wall().timestamp() * _MS))
        tee = PlainTee()
        try:
            body = await asyncio.to_thread(_of_one_token, kept.body)
            request = UpstreamRequest("POST", kept.path, (*engine_headers(headers, request_id), *chosen), body)
            async with (
                asyncio.timeout(deadlines.connect_s + deadlines.first_byte_s),  # one token is no stream to wait for
                await parts.client.send(parts.fleet.config_of(endpoint_id), request, deadlines) as answer,
            ):
                while chunk := await answer.read_chunk(deadlines.first_byte_s):
                    tee.feed(chunk)
                if answer.status != 200:
                    return "refused" if answer.status in _REFUSALS else "failed", 0
        except UpstreamError as error:
            parts.fleet.failed(endpoint_id, error)
            return "failed", 0
        except TimeoutError:
            return "failed", 0
        except GatewayError:
            return "refused", 0  # nested too deeply to be cut
        tee.held()
        usage = tee.usage.result().usage
        if not tee.began:
            return "failed", 0
        if usage is None or usage.prompt_tokens is None:
            return "computed", kept.plan.chain.prompt_tokens
        return "computed", max(usage.prompt_tokens - (usage.cached_tokens or 0), 0)

    def _kept_of(self, exchange: Exchange) -> Kept | None:
        """None where nothing was cached, or nothing that could be sent again to the same effect."""
        plan, out, tee = exchange.plan, exchange.outgoing, exchange.tee
        usage = tee.usage.result().usage if tee is not None else None
        cached = (usage.cached_tokens if usage is not None else None) or 0
        blocks = min(cached // plan.chain.block_size, len(plan.chain))
        if not blocks or out is None or out.path not in _ROUTES or plan.no_affinity or not plan.exact:
            return None
        name = plan.chain.hashes[(blocks - 1) * HASH_BYTES : blocks * HASH_BYTES]
        facts, salted = self._parts.fleet.facts_of(exchange.endpoint_id), self._is_salted(exchange.endpoint_id)
        engine = None if facts is None or plan.base == exchange.request.model else facts.engine
        return Kept(name, exchange.request.model, out.path, out.body, plan, salted, cached, 0, engine)

    def _holds(self, endpoint_id: EndpointId, kept: Kept, match: Match[str]) -> bool:
        """Whether an endpoint has a prefix, as far as is known."""
        if endpoint_id not in self._parts.fleet:
            return False
        sent = self._parts.fleet.sent(endpoint_id, kept.plan, match, self._parts.clocks.monotonic())
        held = max(sent.confirmed_blocks, sent.speculative_blocks)
        return _has(kept.plan.chain.hashes[: held * HASH_BYTES], kept.name)

    def _is_salted(self, endpoint_id: str) -> bool:
        return self._parts.inject_salt and self._parts.fleet.takes_salt(endpoint_id)

    def _is_up(self, endpoint_id: EndpointId) -> bool:
        endpoints = self._parts.fleet.snapshot()
        return any(e.id == endpoint_id and e.healthy and not e.draining and e.facts is not None for e in endpoints)

    def _is_for(self, kept: Kept, endpoint_id: EndpointId) -> bool:
        fleet = self._parts.fleet
        facts = fleet.facts_of(endpoint_id)
        if not fleet.roles.can_be_warmed(endpoint_id, facts):
            return False
        if kept.engine is not None and (facts is None or facts.engine != kept.engine):
            return False
        return serves(self._parts.fleet.seen(endpoint_id), kept.model) and kept.salted == self._is_salted(endpoint_id)

    def _room_tokens(self, endpoint_id: EndpointId) -> float:
        facts = self._parts.fleet.seen(endpoint_id).facts
        capacity = facts.capacity_tokens if facts is not None else None
        return math.inf if capacity is None else MOST_SHARE * capacity


def _of_one_token(body: bytes) -> bytes:
    """The same prompt, asked for an answer of one token. O(body)."""
    return add_fields(cut_fields(body, _CUT), _OURS)


def _has(hashes: bytes, name: bytes) -> bool:
    """Whether a block of that name is in a chain. O(blocks) in C."""
    at = hashes.find(name)
    while at % HASH_BYTES and at >= 0:
        at = hashes.find(name, at + 1)
    return at >= 0
