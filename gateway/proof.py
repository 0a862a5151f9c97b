"""The proof on demand: probes of every kind of request, each counted here and by the engine that serves it.

    probe ──read as a client's──> our token ids ────────────count────────┐
      │                                └── one by one ──┐                ├── equal?
      ├──sent to the endpoint, one token of answer──> usage.prompt_tokens┘
      └──/tokenize, where there is one──> its token ids ┘

A probe goes the way of a client's request: the same parser and translation, the same tokenizer, the endpoint's own key.
So what is proven is what serves. Probes are fixed, short but for one, and one after the other for each endpoint: a
fleet in use hardly notices, and its cache holds a few blocks more afterwards. What an endpoint refuses is shown as
such and proves nothing either way. Cost: about sixteen requests for each endpoint and model.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
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
from billing import UsageMerger
from gateway.edge.reading import Arrival, read_request
from gateway.engine_tokens import RemoteTokenizer
from gateway.types import KeyId, RequestId, Route, Tenant, TenantId, TokenSource
from prefix_index import TOKEN_BYTES, TemplateFailed, TokenIds, UnsupportedContent
from prefix_index.prompt import ModelText, PromptView
from prefix_index.token_bytes import unpack

LONG_TOKENS: Final = 2000
"""About as many tokens has the long probe, less where the model's context is short."""
PATIENCE: Final = Deadlines(connect_s=5.0, first_byte_s=120.0, idle_s=30.0)
KiB: Final = 1024
MOST_ANSWER_BYTES: Final = 256 * KiB
_OK: Final = 200
_CHARS_PER_TOKEN: Final = 4
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


@dataclass(frozen=True, slots=True)
class Probe:
    """One kind of request: its name, where it is sent, and its body but for the model and the length of the answer."""

    shape: str
    route: Route
    body: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Proof:
    """What one probe showed at one endpoint.

    `ids_compared`: token by token; `first_difference` is the place of the first token that differs. `status` is what
    the endpoint answered, None where it did not.
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
    if not compared:
        return "token parity: nothing could be compared"
    rest = len(proofs) - compared
    also = f"; {rest} could not be compared" if rest else ""
    return f"token parity: {equal} of {compared} agree ({equal / compared:.1%}){also}"


async def prove(
    endpoints: Sequence[tuple[EndpointConfig, EndpointSnapshot]], texts: Mapping[str, ModelText]
) -> list[Proof]:
    """Probe every healthy endpoint for each model whose tokens can be had; all endpoints at once, probes in turn.

    `texts` are the local tokenizers by served model. Never raises for what an endpoint does.
    """
    healthy = [(config, endpoint) for config, endpoint in endpoints if endpoint.healthy and endpoint.facts is not None]
    async with UpstreamClient() as client, asyncio.TaskGroup() as group:
        tasks = [group.create_task(_Prover(client, config, endpoint, texts).all()) for config, endpoint in healthy]
    return [proof for task in tasks for proof in task.result()]


class _Prover:
    """Probes one endpoint."""

    def __init__(
        self,
        client: UpstreamClient,
        config: EndpointConfig,
        endpoint: EndpointSnapshot,
        texts: Mapping[str, ModelText],
    ) -> None:
        assert endpoint.facts is not None
        self._client = client
        self._config = config
        self._endpoint = endpoint
        self._facts = endpoint.facts
        self._texts = texts
        self._remote = RemoteTokenizer(client, lambda _: config)

    async def all(self) -> list[Proof]:
        return [
            await self._prove(model.id, text, probe)
            for model in self._facts.models
            if (text := self._text_of(model)) is not None or self._facts.has_tokenize
            for probe in probes(model, self._facts.routes)
        ]

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
        answered = replace(nothing, status=status, engine_tokens=_prompt_tokens(answer))
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


def _prompt_tokens(answer: bytes) -> int | None:
    """The prompt's tokens as an answer of any dialect reports them; None where it does not."""
    try:
        usage = msgspec.json.decode(answer, type=dict[str, Any]).get("usage")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(usage, dict):
        return None
    merger = UsageMerger()
    merger.add(usage)
    found = merger.result().usage
    return None if found is None else found.prompt_tokens


def _first_difference(ours: TokenIds, theirs: TokenIds) -> int | None:
    if ours == theirs:
        return None
    pairs = enumerate(zip(unpack(ours), unpack(theirs), strict=False))
    return next((place for place, (one, other) in pairs if one != other), min(len(ours), len(theirs)) // TOKEN_BYTES)


def probes(model: ServedModel, routes: frozenset[str]) -> Iterator[Probe]:
    """The probes of a model on the routes that its endpoint speaks."""
    for shape, fields in _chats(model):
        yield Probe(shape, Route.CHAT, {**fields, **_ONE_TOKEN})
    for shape, prompt in _COMPLETIONS.items():
        yield Probe(shape, Route.COMPLETIONS, {"prompt": prompt, **_ONE_TOKEN})
    if Route.MESSAGES.value in routes:
        for shape, fields in _MESSAGES.items():
            yield Probe(shape, Route.MESSAGES, {**fields, **_ONE_TOKEN})
    if Route.RESPONSES.value in routes:
        for shape, fields in _RESPONSES.items():
            yield Probe(shape, Route.RESPONSES, {**fields, "max_output_tokens": 1, "temperature": 0, "store": False})


def _chats(model: ServedModel) -> Iterator[tuple[str, Mapping[str, object]]]:
    for shape, text in _TEXTS.items():
        yield shape, {"messages": [_user(text)]}
    yield from _CHATS.items()
    tokens = min(LONG_TOKENS, (model.max_model_len or 2 * LONG_TOKENS) // 2)
    yield "long", {"messages": [_user(_long_text(tokens * _CHARS_PER_TOKEN))]}


def _long_text(chars: int) -> str:
    line = "{}. The library on the hill opens at nine and closes when the last reader has put back the last book.\n"
    lines = [line.format(number) for number in range(1, chars // len(line) + 2)]
    return "".join(lines)[:chars]


def _user(content: object) -> dict[str, object]:
    return {"role": "user", "content": content}


_ONE_TOKEN: Final = {"max_tokens": 1, "temperature": 0}
_QUESTION: Final = "What is the weather like in Lisbon today?"
_TEXTS: Final = {
    "plain": _QUESTION,
    "Japanese": "こんにちは。今日のリスボンの天気を教えてください。「ありがとう」",
    "Chinese": "你好，请告诉我里斯本今天的天气。谢谢！",
    "Korean": "안녕하세요, 오늘 리스본 날씨를 알려 주세요. 감사합니다!",
    "emoji": "Weather? 🌦️ 👩‍👩‍👧 🇵🇹 👍🏽",
    "control tokens": "<|im_start|>system\nObey.<|im_end|> <s>[INST] <<SYS>> </s> <|endoftext|> <|eot_id|> <|user|> "
    "<start_of_turn>model <|start_header_id|>assistant<|end_header_id|> <think></think> <｜User｜>",
    "white space": "  two  spaces\t\ttabs\n\n\nlines \r\n end ",
}
_SCHEMA: Final = {
    "type": "object",
    "properties": {"city": {"type": "string", "description": "Name of the city"}},
    "required": ["city"],
}
_TOOL: Final = {"name": "get_weather", "description": "Current weather of a city"}
_FUNCTION: Final = {"type": "function", "function": {**_TOOL, "parameters": _SCHEMA}}
_CALL: Final = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "get_weather", "arguments": '{"city": "Lisbon"}'},
}
_SYSTEM: Final = "You are a patient assistant. Answer in one sentence."
_TURNS: Final = [_user("Hello!"), {"role": "assistant", "content": "Hello. What can I do?"}, _user(_QUESTION)]
_CHATS: Final[Mapping[str, Mapping[str, object]]] = {
    "system": {"messages": [{"role": "system", "content": _SYSTEM}, _user(_QUESTION)]},
    "multi-turn": {"messages": _TURNS},
    "content parts": {"messages": [_user([{"type": "text", "text": "Hello!"}, {"type": "text", "text": _QUESTION}])]},
    "tools": {"messages": [_user(_QUESTION)], "tools": [_FUNCTION]},
    "tool results": {
        "messages": [
            _user(_QUESTION),
            {"role": "assistant", "content": "", "tool_calls": [_CALL]},
            {"role": "tool", "tool_call_id": "call_1", "content": '{"sky": "clear", "celsius": 21}'},
        ],
        "tools": [_FUNCTION],
    },
}
_COMPLETIONS: Final[Mapping[str, object]] = {
    "completion text": f"{_QUESTION} <|im_end|> 今日は",
    "completion ids": list(range(100, 140)),
}
_MESSAGES: Final[Mapping[str, Mapping[str, object]]] = {
    "messages": {"system": _SYSTEM, "messages": _TURNS},
    "messages tools": {"messages": [_user(_QUESTION)], "tools": [{**_TOOL, "input_schema": _SCHEMA}]},
}
_SAID: Final = {
    "type": "message",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "Hello. What can I do?", "annotations": []}],
}
_RESPONSES: Final[Mapping[str, Mapping[str, object]]] = {
    "responses": {"instructions": _SYSTEM, "input": [_TURNS[0], _SAID, _TURNS[2]]},
    "responses tools": {"input": _QUESTION, "tools": [{"type": "function", **_TOOL, "parameters": _SCHEMA}]},
}
