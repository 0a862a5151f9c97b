"""The proof on demand: probes of every kind of request, each counted here and by the engine that serves it.

    probe ──read as a client's──> our token ids ────────────count────────┐
      │                                └── one by one ──┐                ├── equal?
      ├──sent to the endpoint, one token of answer──> usage.prompt_tokens┘
      └──/tokenize, where there is one──> its token ids ┘

A probe (probes.py) goes the way of a client's request: the same parser and translation, the same tokenizer, the
endpoint's own key. So what is proven is what serves. Probes are short but for one, and sent one after the other to each
model: a fleet in use hardly notices, and its cache holds a few blocks more afterwards. What an endpoint refuses is
shown as such and proves nothing either way. Cost: 15 to 19 requests for each endpoint and model. An endpoint may list
thousands of models: a few are probed at once, adapters and short names are not where what they stand for is, which has
their tokenizer, and what is left out or comes too late is named (`Effort`).
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

import msgspec

from backends import (
    Deadlines,
    EndpointConfig,
    EndpointSnapshot,
    ServedModel,
    UpstreamClient,
    UpstreamError,
    UpstreamRequest,
)
from billing import Usage, UsageMerger
from billing.counting import counted
from gateway.edge.reading import Arrival, read_request
from gateway.engine_tokens import RemoteTokenizer
from gateway.probes import Probe, probes
from gateway.stream_format import KiB
from gateway.surrogates import UNREADABLE
from gateway.types import KeyId, RequestId, Route, Tenant, TenantId, TokenSource
from prefix_index import TOKEN_BYTES, TemplateFailed, TokenIds, UnsupportedContent
from prefix_index.prompt import ModelText, PromptView
from prefix_index.token_bytes import unpack

PATIENCE: Final = Deadlines(connect_s=5.0, first_byte_s=120.0, idle_s=30.0)
MOST_ANSWER_BYTES: Final = 256 * KiB
_OK: Final = 200
_NOBODY: Final = Tenant(TenantId("check"), KeyId("check"), share_group="check", salt="")


class Verdict(StrEnum):
    """What a probe showed."""

    EQUAL = "equal"
    DIFFERENT = "different"
    REFUSED = "refused"
    NO_ANSWER = "no answer"
    NO_USAGE = "no usage reported"
    NOT_TOKENIZED = "not tokenized"
    """Neither here nor by the engine: such prompts are matched by bytes or not at all, and the gateway says so."""
    NOT_PROBED = "not probed"
    """One of too many models, or the time was up."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is probed: so many models of each endpoint, so many at once, and no probe begins after `limit_s`.

    `told` hears how many models are done, and of how many.
    """

    most_models: int = 16
    at_once: int = 4
    limit_s: float = 300.0
    told: Callable[[int, int | None], None] = lambda _done, _total: None


@dataclass(frozen=True, slots=True)
class Proof:
    """What one probe showed at one endpoint.

    `ids_compared`: token by token; `first_difference` is the place of the first token that differs. `status` is what
    the endpoint answered, None where it did not. `told_cached`: its answer said how much of the prompt was cached.
    """

    endpoint_id: str
    model: str
    shape: str
    source: TokenSource
    verdict: Verdict
    status: int | None = None
    ours_tokens: int | None = None
    engine_tokens: int | None = None
    ids_compared: bool = False
    first_difference: int | None = None
    told_cached: bool = False

    @property
    def ids_equal(self) -> str:
        """For people: whether the ids are equal, and from where they are not."""
        if not self.ids_compared:
            return "-"
        return "yes" if self.first_difference is None else f"no, from {self.first_difference}"

    @property
    def outcome(self) -> str:
        """For people: the verdict, and the status of a refusal."""
        return f"refused {self.status}" if self.verdict is Verdict.REFUSED else self.verdict.value


def summary(proofs: Sequence[Proof]) -> str:
    """One line: the share of the comparisons that agree, and how many probes could not be compared."""
    equal = sum(proof.verdict is Verdict.EQUAL for proof in proofs)
    compared = equal + sum(proof.verdict is Verdict.DIFFERENT for proof in proofs)
    unprobed = sum(proof.verdict is Verdict.NOT_PROBED for proof in proofs)
    left = f"; {counted(unprobed, 'model')} not probed" if unprobed else ""
    if not compared:
        return f"token parity: nothing could be compared{left}"
    rest = len(proofs) - compared - unprobed
    also = (f"; {rest} could not be compared" if rest else "") + left
    return f"token parity: {equal} of {compared} agree ({equal / compared:.1%}){also}"


async def prove(
    endpoints: Sequence[tuple[EndpointConfig, EndpointSnapshot]],
    texts: Mapping[str, ModelText],
    effort: Effort = Effort(),
) -> list[Proof]:
    """Probe every healthy endpoint for each model whose tokens can be had; a few models at once, probes in turn.

    `texts` are the local tokenizers by served model. Never raises for what an endpoint does. What `effort` leaves out
    is in the answer as `NOT_PROBED`, one for a model.
    """
    healthy = [(config, endpoint) for config, endpoint in endpoints if endpoint.healthy and endpoint.facts is not None]
    ends_s = time.monotonic() + effort.limit_s
    async with UpstreamClient() as client:
        provers = [_Prover(client, config, endpoint, texts, ends_s) for config, endpoint in healthy]
        work = [_Work(prover, effort) for prover in provers]
        total, done = sum(len(one.chosen) for one in work), 0

        async def proven(one: _Work, model: ServedModel) -> list[Proof]:
            nonlocal done
            async with one.turn:
                found = await one.prover.model(model)
            done += 1
            effort.told(done, total)
            return found

        effort.told(0, total)
        async with asyncio.TaskGroup() as group:
            tasks = [[group.create_task(proven(one, model)) for model in one.chosen] for one in work]
    return [
        proof
        for one, models in zip(work, tasks, strict=True)
        for proof in [*(found for task in models for found in task.result()), *one.left_out()]
    ]


class _Work:
    """Which models of one endpoint are probed, and whose turn it is."""

    def __init__(self, prover: "_Prover", effort: Effort) -> None:
        self.prover = prover
        self.turn = asyncio.Semaphore(effort.at_once)
        provable = prover.provable()
        bases = {model.id for model in provable}
        wanted = [model for model in provable if model.parent not in bases and model.alias_of not in bases]
        self.chosen, self._left = wanted[: effort.most_models], wanted[effort.most_models :]

    def left_out(self) -> list[Proof]:
        """A word on each model that is one too many."""
        return [self.prover.unprobed(model) for model in self._left]


class _Prover:
    """Probes one endpoint, until `ends_s`."""

    def __init__(
        self,
        client: UpstreamClient,
        config: EndpointConfig,
        endpoint: EndpointSnapshot,
        texts: Mapping[str, ModelText],
        ends_s: float,
    ) -> None:
        assert endpoint.facts is not None
        self._client = client
        self._config = config
        self._endpoint = endpoint
        self._facts = endpoint.facts
        self._texts = texts
        self._ends_s = ends_s
        self._remote = RemoteTokenizer(client, lambda _: config)

    def provable(self) -> list[ServedModel]:
        """The models whose tokens can be had."""
        return [one for one in self._facts.models if self._text_of(one) is not None or self._facts.has_tokenize]

    async def model(self, model: ServedModel) -> list[Proof]:
        """Every probe of one model; the first that would come too late ends it."""
        text, found = self._text_of(model), list[Proof]()
        for probe in probes(model, self._facts.routes):
            if time.monotonic() > self._ends_s:
                return [*found, self.unprobed(model)]
            found.append(await self._prove(model.id, text, probe))
        return found

    def unprobed(self, model: ServedModel) -> Proof:
        """What is to say of a model that had no turn."""
        source = TokenSource.ENGINE if self._text_of(model) is None else TokenSource.LOCAL
        return Proof(self._endpoint.id, model.id, "", source, Verdict.NOT_PROBED)

    def _text_of(self, model: ServedModel) -> ModelText | None:
        """Tokenizer and template here of the model, or of the model that it adapts, in the way of this engine."""
        text = self._texts.get(model.id) or self._texts.get(model.parent or "")
        return None if text is None else text.for_engine(self._facts.engine)

    async def _prove(self, model: str, text: ModelText | None, probe: Probe) -> Proof:
        body = msgspec.json.encode({"model": model, **probe.body})
        source = TokenSource.ENGINE if text is None else TokenSource.LOCAL
        nothing = Proof(self._endpoint.id, model, probe.shape, source, Verdict.NO_ANSWER)
        try:
            status, answer = await self._ask(probe.route, body)
        except UpstreamError:
            return nothing
        if status != _OK:
            return replace(nothing, verdict=Verdict.REFUSED, status=status)
        usage = _usage(answer)
        answered = replace(
            nothing,
            status=status,
            engine_tokens=None if usage is None else usage.prompt_tokens,
            told_cached=usage is not None and usage.cached_tokens is not None,
        )
        prompt = _prompt(probe.route, body)
        theirs = await self._remote.tokens_of(model, prompt, [self._endpoint])
        try:
            ours = None if text is None else _encode(text, prompt)
        except TemplateFailed:  # the engine has answered: its template takes what ours refuses
            return replace(answered, verdict=Verdict.DIFFERENT)
        return _compared(answered, ours, theirs)

    async def _ask(self, route: Route, body: bytes) -> tuple[int, bytes]:
        headers = [(b"content-type", b"application/json")]
        if route is Route.MESSAGES:
            headers.append((b"anthropic-version", b"2023-06-01"))
        request = UpstreamRequest("POST", route.value, tuple(headers), body)
        async with await self._client.send(self._config, request, PATIENCE) as response:
            return response.status, await response.read(MOST_ANSWER_BYTES)


def _compared(answered: Proof, ours: TokenIds | None, theirs: TokenIds | None) -> Proof:
    """What local ids, the engine's ids and its usage say together; without local ids the engine's take their place."""
    ids = theirs if ours is None else ours
    if ids is None:
        return replace(answered, verdict=Verdict.NOT_TOKENIZED)
    found = replace(
        answered,
        source=TokenSource.ENGINE if ours is None else TokenSource.LOCAL,
        ours_tokens=len(ids) // TOKEN_BYTES,
        ids_compared=ours is not None and theirs is not None,
        first_difference=None if theirs is None else _first_difference(ids, theirs),
    )
    reported = found.engine_tokens
    if reported is None and not found.ids_compared:
        return replace(found, verdict=Verdict.NO_USAGE)
    equal = reported in (None, found.ours_tokens) and found.first_difference is None
    return replace(found, verdict=Verdict.EQUAL if equal else Verdict.DIFFERENT)


def _prompt(route: Route, body: bytes) -> PromptView:
    """What the gateway tokenises of a client's request."""
    arrival = Arrival(
        id=RequestId("check"),
        tenant=_NOBODY,
        route=route,
        path=route.value,
        headers=(),
        started_s=0.0,
        opened_at=datetime.now(UTC),
    )
    return read_request(arrival, body).prompt


def _encode(text: ModelText, prompt: PromptView) -> TokenIds | None:
    """Local ids; None where only the engine can say. Raises `TemplateFailed`."""
    try:
        encoding = text.begin(prompt)
    except UnsupportedContent:
        return None
    encoding.compute()
    return encoding.finish()


def _usage(answer: bytes) -> Usage | None:
    """What an answer of any dialect reports; None where it reports nothing that can be read."""
    try:
        usage = msgspec.json.decode(answer, type=dict[str, Any]).get("usage")
    except UNREADABLE:
        return None
    if not isinstance(usage, dict):
        return None
    merger = UsageMerger()
    merger.add(usage)
    return merger.result().usage


def _first_difference(ours: TokenIds, theirs: TokenIds) -> int | None:
    if ours == theirs:
        return None
    pairs = enumerate(zip(unpack(ours), unpack(theirs), strict=False))
    return next((place for place, (one, other) in pairs if one != other), min(len(ours), len(theirs)) // TOKEN_BYTES)
