"""What every engine must keep to behind its dialect, asked of a server that lives.

    detected as what it is      facts of the right type and size, no figure that its pages do not have
    cold, warm                  the same prompt twice: cached tokens by the dialect's convention, or none at all
    tokens                      as many ids as the usage counts, where it tells ids
    an unknown model            an error that says so, or the only model there is
    a restart                   another generation, and nothing cached

Each function takes a server and fails where it breaks the contract.
"""

import secrets
from array import array
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import httpx

from backends import EndpointConfig, EndpointId, EndpointSnapshot, Feature, Standing, UpstreamClient
from backends.health import Probe, http_client
from backends.registry import PollSettings, Registry
from backends.types import EndpointFacts, LoadSample
from gateway.engine_tokens import RemoteTokenizer
from prefix_index.prompt import PromptView

A = EndpointId("a")
PATIENCE_S = 120.0
LONGEST_BLOCK = 4096
NO_ANSWER = "the server has not answered"


class Convention(Enum):
    """How an engine counts what it had of a prompt."""

    BLOCKS = auto()
    """Whole blocks; of a prompt it has in full, all but the block of the last token."""
    TOKENS = auto()
    """Single tokens, all but the last one."""
    NOTHING = auto()
    """It says nothing, which is not 0."""
    ITS_OWN = auto()
    """Nobody knows; but never more than there was."""


CONVENTIONS = {
    "reference": Convention.BLOCKS,
    "vllm": Convention.BLOCKS,
    "sglang": Convention.BLOCKS,
    "trtllm": Convention.BLOCKS,
    "llamacpp": Convention.TOKENS,
    "tgi": Convention.NOTHING,
    "ollama": Convention.NOTHING,
    "openai": Convention.ITS_OWN,
}
ANY_MODEL = frozenset({"llamacpp", "sglang", "tgi", "trtllm"})
"""They serve one model, whatever it is called: a wrong name is the gateway's to refuse."""


@dataclass(frozen=True, slots=True)
class LiveEngine:
    """A server that is up. `restart` returns when another process answers at its address. `words` make a prompt of
    several blocks. `convention` is the dialect's where it is None; `tells_zero`: whether usage has a count of 0;
    `shows_restart`: whether its pages show one that took less than a poll's interval."""

    dialect: str
    url: str
    model: str
    restart: Callable[[], Awaitable[None]] | None = None
    words: int = 300
    convention: Convention | None = None
    tells_zero: bool = True
    shows_restart: bool = True

    def config(self) -> EndpointConfig:
        """As an endpoint of a registry."""
        return EndpointConfig(A, self.url)


def new_prompt(engine: LiveEngine) -> list[dict[str, Any]]:
    """Messages that nobody has sent before."""
    said = " ".join(f"{secrets.token_hex(2)} rule {number}" for number in range(engine.words // 3))
    return [{"role": "user", "content": f"{secrets.token_hex(8)} {said}"}]


async def ask(engine: LiveEngine, messages: list[dict[str, Any]], model: str | None = None) -> httpx.Response:
    """One chat of two tokens."""
    body = {"model": model or engine.model, "messages": messages, "max_tokens": 2, "temperature": 0}
    async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_S) as http:
        return await http.post(f"{engine.url}/v1/chat/completions", json=body)


async def usage(engine: LiveEngine, messages: list[dict[str, Any]]) -> dict[str, Any]:
    """What an answer says that it took."""
    answer = await ask(engine, messages)
    assert answer.status_code == httpx.codes.OK, answer.text
    found: dict[str, Any] = answer.json()["usage"]
    return found


def cached(said: dict[str, Any]) -> int | None:
    """The cached tokens of a usage; None where it has none, or no details."""
    found = (said.get("prompt_tokens_details") or {}).get("cached_tokens")
    assert found is None or type(found) is int
    return found


async def look(engine: LiveEngine) -> tuple[EndpointFacts, LoadSample | None]:
    """What a probe finds."""
    config = engine.config()
    async with http_client(config) as http:
        probe = Probe(config, http)
        dialect, facts = await probe.detect()
        return facts, await probe.poll(dialect, 1.0)


async def is_detected_with_facts_that_make_sense(engine: LiveEngine) -> None:
    """Of the right kind, and of a size that an engine can have."""
    facts, _ = await look(engine)
    assert facts.engine == engine.dialect
    assert engine.model in {model.id for model in facts.models}
    for model in facts.models:
        assert model.max_model_len is None or model.max_model_len > 0
    assert facts.block_size is None or 1 <= facts.block_size <= LONGEST_BLOCK
    if facts.capacity_tokens is not None:
        assert facts.capacity_tokens >= (facts.block_size or 1)
        assert facts.capacity_blocks == (facts.block_size and facts.capacity_tokens // facts.block_size)
    assert facts.version is None or facts.version
    assert facts.ranks >= 1
    assert "/v1/chat/completions" in facts.routes
    assert set(facts.features) == set(Feature)


async def tells_its_load_or_that_it_does_not(engine: LiveEngine) -> None:
    """Idle: nobody runs or waits; and after a prompt, counters have moved."""
    facts, before = await look(engine)
    await usage(engine, new_prompt(engine))
    _, after = await look(engine)
    if before is None or after is None or before.running is None:
        assert facts.features[Feature.METRICS].standing is not Standing.ON
        return
    assert after.running is not None
    assert (after.running, after.waiting or 0) == (0, 0)
    assert after.kv_use is None or 0 <= after.kv_use <= 1
    moved = [
        new > old
        for old, new in ((before.steps, after.steps), (before.prefix_queries, after.prefix_queries))
        if old is not None and new is not None
    ]
    assert all(moved), (before, after)


async def counts_cached_tokens_by_its_convention(engine: LiveEngine) -> None:
    """One prompt cold and warm, and the prompt as long both times."""
    facts, before = await look(engine)
    prompt = new_prompt(engine)
    cold, warm = await usage(engine, prompt), await usage(engine, prompt)
    tokens = warm["prompt_tokens"]
    assert cold["prompt_tokens"] == tokens
    convention = engine.convention or CONVENTIONS[engine.dialect]
    if convention is Convention.NOTHING:
        assert (cached(cold), cached(warm)) == (None, None)
        return
    was, had = cached(cold), cached(warm)
    if not engine.tells_zero:
        assert was != 0
        was = was or 0
    if convention is Convention.ITS_OWN:
        assert 0 <= (was or 0) <= (had or 0) < tokens
        return
    assert was is not None
    assert had is not None
    assert was < had < tokens
    if convention is Convention.BLOCKS:
        assert facts.block_size is not None
        assert had == (tokens - 1) // facts.block_size * facts.block_size
        assert was % facts.block_size == 0
    else:
        assert had == tokens - 1
    _, after = await look(engine)
    if before is not None and after is not None and before.prefix_hits is not None:
        assert after.prefix_hits is not None
        assert after.prefix_queries is not None
        assert before.prefix_queries is not None
        assert after.prefix_hits - before.prefix_hits == was + had
        assert after.prefix_queries - before.prefix_queries == 2 * tokens


async def tells_as_many_tokens_as_it_counts(engine: LiveEngine) -> None:
    """Where it can be asked for them: in chats, and so in what the gateway makes of their blocks."""
    facts, _ = await look(engine)
    prompt = new_prompt(engine)
    endpoint = EndpointSnapshot(A, healthy=True, generation=1, facts=facts)
    async with UpstreamClient() as client:
        remote = RemoteTokenizer(client, lambda _: engine.config())
        ids = await remote.tokens_of(engine.model, PromptView(messages=prompt), [endpoint])
    if not facts.has_tokenize:
        assert ids is None
        return
    assert ids is not None
    assert len(array("I", ids)) == (await usage(engine, prompt))["prompt_tokens"]


async def refuses_a_model_that_it_does_not_have(engine: LiveEngine) -> None:
    """With an error of its own form, unless it serves the only one under any name."""
    answer = await ask(engine, [{"role": "user", "content": "hello"}], model="there/is-no-such-model")
    if engine.dialect in ANY_MODEL:
        assert answer.status_code == httpx.codes.OK
        return
    assert answer.status_code in (httpx.codes.NOT_FOUND, httpx.codes.BAD_REQUEST)
    said = answer.json()
    error = said.get("error", said)
    assert "no-such-model" in (error if isinstance(error, str) else error["message"])


async def is_another_one_after_a_restart(engine: LiveEngine) -> None:
    """Its generation rises, whether or not it was seen to be away, and what it held is gone."""
    assert engine.restart is not None
    prompt = new_prompt(engine)
    async with Registry([engine.config()], lambda: 0.0, settings=PollSettings(deadline_s=PATIENCE_S)) as registry:
        generations: list[int] = []
        registry.subscribe(lambda _, generation: generations.append(generation))
        await usage(engine, prompt)
        await registry.poll(A)
        assert registry.snapshot()[0].healthy, registry.snapshot()[0].unhealthy_reason
        await registry.poll(A)
        seen = len(generations)
        assert seen <= 1
        await engine.restart()
        await registry.poll(A)
        again = registry.snapshot()[0]
        assert again.healthy, again.unhealthy_reason
        assert (len(generations) > seen) is engine.shows_restart
    forgotten = cached(await usage(engine, prompt))
    assert forgotten in (None, 0) or (engine.dialect == "llamacpp" and forgotten < engine.words)


CONTRACT = (
    is_detected_with_facts_that_make_sense,
    tells_its_load_or_that_it_does_not,
    counts_cached_tokens_by_its_convention,
    tells_as_many_tokens_as_it_counts,
    refuses_a_model_that_it_does_not_have,
)
"""All but the restart, which not every server can be put through."""
