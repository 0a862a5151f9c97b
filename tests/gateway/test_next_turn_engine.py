"""What is claimed after an answer, against a real engine: it reuses at the next turn exactly what was claimed."""

import json
from array import array
from collections.abc import Iterator
from dataclasses import dataclass

import httpx
import pytest

from backends.reference.embedded import RunningEngine, run_engine
from backends.reference.model_files import ensure_model
from backends.reference.types import EngineConfig
from gateway.exchange import Exchange
from gateway.types import Route
from prefix_index import Chain, chain_of, pack
from prefix_index.prompt import ModelText, load_model_text
from tests.gateway.next_turns import BLOCK, MODEL, ROOT, Learner, answered, planned, read

QUESTIONS = ("Where is Paris? Answer in one sentence.", "And where is Rome?", "Which of them is larger?")


@pytest.fixture(scope="module")
def speaking() -> Iterator[RunningEngine]:
    """A model that learned to speak: what it samples is what its tokenizer would have made of the text."""
    with run_engine(EngineConfig(model="smollm2", served_model_name=MODEL, kv_blocks=200, threads=1)) as engine:
        yield engine


@pytest.fixture(scope="module")
def babbling() -> Iterator[RunningEngine]:
    """Random weights, which sample tokens as they come."""
    with run_engine(EngineConfig(model="tiny", served_model_name=MODEL, kv_blocks=600, threads=1)) as engine:
        yield engine


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn: the exchange, what was reused of its prompt, and the chain of all that was computed for it."""

    exchange: Exchange
    cached_tokens: int
    computed: Chain


def ask(engine: RunningEngine, text: ModelText, body: dict[str, object], route: Route = Route.CHAT) -> Turn:
    """Ask the engine, and let the answer pass through the gateway's hands."""
    body = {"model": MODEL, "temperature": 0, "return_token_ids": True, **body}
    request = read(body, route)
    answer = httpx.post(f"{engine.url}{route.value}", json=body, timeout=60).raise_for_status()
    streamed = bool(body.get("stream"))
    exchange = answered(request, planned(text, request.prompt), answer.content, streamed=streamed)
    assert exchange.tee is not None
    usage = exchange.tee.usage.result().usage
    assert usage is not None
    assert usage.cached_tokens is not None
    prompt, output = _token_ids(answer.content, streamed=streamed)
    return Turn(exchange, usage.cached_tokens, chain_of(pack(array("I", [*prompt, *output[:-1]])), ROOT, BLOCK))


def _token_ids(answer: bytes, *, streamed: bool) -> tuple[list[int], list[int]]:
    """The engine's word for the tokens of prompt and answer."""
    events = [line[6:] for line in answer.split(b"\n") if line.startswith(b"data: {")] if streamed else [answer]
    chunks = [json.loads(event) for event in events]
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    prompt = next((chunk["prompt_token_ids"] for chunk in chunks if chunk.get("prompt_token_ids")), None)
    prompt = prompt or choices[0]["prompt_token_ids"]
    return prompt, [token for choice in choices for token in choice.get("token_ids") or ()]


async def learned(text: ModelText, turn: Turn) -> tuple[Chain, dict[str, float]]:
    """The longest chain that the index has for what this turn left behind, and the outcome."""
    learner = Learner(text)
    outcomes = await learner.learn(turn.exchange)
    return (learner.observed[0][1] if learner.observed else turn.exchange.plan.chain), outcomes


def in_common(one: Chain, other: Chain) -> int:
    """Blocks at the beginning of both."""
    return sum(one.hashes[: 8 * n] == other.hashes[: 8 * n] for n in range(1, min(len(one), len(other)) + 1))


def said(turn: Turn, *, streamed: bool) -> str:
    assert turn.exchange.tee is not None
    kept = turn.exchange.tee.kept()
    assert kept is not None
    if not streamed:
        return str(json.loads(kept)["choices"][0]["message"]["content"])
    events = [json.loads(line[6:]) for line in kept.split(b"\n") if line.startswith(b"data: {")]
    return "".join(choice["delta"].get("content") or "" for event in events for choice in event["choices"])


async def test_a_conversation_reuses_what_was_claimed_of_its_last_answer(speaking: RunningEngine) -> None:
    httpx.post(f"{speaking.url}/reset_prefix_cache").raise_for_status()
    text = load_model_text(ensure_model("smollm2")).for_engine("reference")
    messages: list[dict[str, object]] = []
    known: Chain | None = None
    gained = 0
    for number, question in enumerate(QUESTIONS):
        messages.append({"role": "user", "content": question})
        streamed = number % 2 == 1
        fields = {"stream": True, "stream_options": {"include_usage": True}} if streamed else {}
        turn = ask(speaking, text, {"messages": messages, "max_tokens": 34, **fields})
        if known is not None:
            assert turn.cached_tokens == BLOCK * in_common(known, turn.exchange.plan.chain)
        before = len(turn.exchange.plan.chain)
        known, outcomes = await learned(text, turn)
        assert outcomes == {"observed": 1}
        assert turn.computed.hashes.startswith(known.hashes)
        gained += len(known) - before
        messages.append({"role": "assistant", "content": said(turn, streamed=streamed)})
    assert gained >= len(QUESTIONS)


async def test_a_completion_that_goes_on_reuses_what_was_claimed(speaking: RunningEngine) -> None:
    httpx.post(f"{speaking.url}/reset_prefix_cache").raise_for_status()
    text = load_model_text(ensure_model("smollm2")).for_engine("reference")
    prompt = "Once upon a time there was a king who had three daughters."
    turn = ask(speaking, text, {"prompt": prompt, "max_tokens": 34}, Route.COMPLETIONS)
    known, outcomes = await learned(text, turn)
    assert outcomes == {"observed": 1}
    assert turn.computed.hashes.startswith(known.hashes)
    assert turn.exchange.tee is not None
    answer = json.loads(turn.exchange.tee.kept() or b"")["choices"][0]["text"]
    longer = ask(speaking, text, {"prompt": f"{prompt}{answer} The end.", "max_tokens": 1}, Route.COMPLETIONS)
    assert longer.cached_tokens == BLOCK * in_common(known, longer.exchange.plan.chain)
    assert longer.cached_tokens > BLOCK * len(turn.exchange.plan.chain)


async def test_of_babble_whose_tokens_are_not_those_of_its_text_nothing_is_claimed(babbling: RunningEngine) -> None:
    text = load_model_text(ensure_model("tiny")).for_engine("reference")
    outcomes: list[str] = []
    for number in range(10):
        body = {"messages": [{"role": "user", "content": f"Say {number}"}], "max_tokens": 20}
        turn = ask(babbling, text, body)
        known, outcome = await learned(text, turn)
        assert known.prompt_tokens <= turn.computed.prompt_tokens
        outcomes += outcome
    assert "count_differs" in outcomes
