"""Two real vLLM tell of their caches, and an index that hears nothing else expects what they then report as cached.

    engine a  binds tcp://*:P,            we connect         each: 95 blocks of 32, its own processor
    engine b  connects to 127.0.0.1:P,    we bind

Before each prompt the index is asked, behind it the engine's report is read: the two must be equal, token for token.
"""

import asyncio
import os
import random
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from backends import EndpointConfig, EndpointFacts, EndpointId, EventSourceFacts, Registry
from tests.engines.figures import Figures
from tests.engines.kv_follower import KvFollower, Loop
from tests.engines.servers import MODEL, VLLM_BLOCK_TOKENS, EngineServer, VllmOptions, free_port, vllm

pytestmark = [pytest.mark.engines, pytest.mark.timeout(1800)]

KV_BLOCKS = 96
"""Of which vLLM keeps one to itself."""
VOCABULARY = 49_000
EARLY = list(range(1000, 1000 + 4 * VLLM_BLOCK_TOKENS))
"""A prompt that is answered before anybody listens."""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Ask:
    """One prompt: what was expected to be cached before it, and what the engine then reported."""

    what: str
    expected_tokens: int
    reported_tokens: int


@dataclass(slots=True)
class Engine:
    """One vLLM, what it was started with, and the index that follows it."""

    name: str
    options: VllmOptions
    folder: Path
    running: ExitStack = field(default_factory=ExitStack)
    server: EngineServer | None = None
    follower: KvFollower | None = None
    asks: list[Ask] = field(default_factory=list)
    starts: int = 0

    def start(self) -> None:
        """Start the server, again after `kill`."""
        self.starts += 1
        folder = self.folder / f"start-{self.starts}"
        folder.mkdir()
        self.server = self.running.enter_context(vllm("tiny", folder, self.options))

    def kill(self) -> None:
        """As the kernel would: nothing is said any more."""
        os.killpg(self.up.process, signal.SIGKILL)
        self.running.close()

    @property
    def up(self) -> EngineServer:
        """The server, which has been started."""
        assert self.server is not None
        return self.server

    @property
    def index(self) -> KvFollower:
        """The index that follows it, once it does."""
        assert self.follower is not None
        return self.follower

    def ask(self, what: str, prompt: list[int], *, salt: str | None = None, tokens: int = 1) -> list[int]:
        """Complete a prompt, compare, take in what the engine tells; returns the tokens of the answer."""
        expected_tokens = self.index.expected_tokens(prompt, salt)
        answer = self.post("/v1/completions", {"prompt": prompt, "cache_salt": salt, "max_tokens": tokens})
        self.note(what, expected_tokens, answer)
        self.index.catch_up()
        return token_ids(answer["choices"][0]["token_ids"])

    def chat(self, what: str, messages: list[dict[str, str]]) -> str:
        """Answer a chat, compare, take in what the engine tells; returns the text."""
        prompt = token_ids(self.post("/tokenize", {"messages": messages})["tokens"])
        expected_tokens = self.index.expected_tokens(prompt, None)
        answer = self.post("/v1/chat/completions", {"messages": messages, "max_tokens": 24})
        assert answer["prompt_token_ids"] == prompt
        self.note(what, expected_tokens, answer)
        self.index.catch_up()
        text = answer["choices"][0]["message"]["content"]
        assert isinstance(text, str)
        return text

    def note(self, what: str, expected_tokens: int, answer: Json) -> None:
        """Take down one comparison."""
        reported_tokens = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
        self.asks.append(Ask(f"{self.name}: {what}", expected_tokens, reported_tokens))

    def post(self, path: str, body: Json) -> Json:
        """Ask for the same greedy answer each time, with the token ids of prompt and answer."""
        fixed = {"model": MODEL, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
        answer = httpx.post(f"{self.up.url}{path}", json=fixed | body, timeout=300)
        found: Json = answer.raise_for_status().json()
        return found


def token_ids(found: object) -> list[int]:
    """A list of token ids from an answer."""
    assert isinstance(found, list)
    assert all(type(token) is int for token in found)
    return found


class Dice:
    """Prompts of token ids that nobody has used before."""

    def __init__(self, seed: str) -> None:
        self.random = random.Random(seed)

    def tokens(self, count: int) -> list[int]:
        """So many token ids."""
        return [self.random.randrange(1000, VOCABULARY) for _ in range(count)]


def all_at_once(engines: Sequence[Engine], script: Callable[[Engine, Dice], None], name: str) -> None:
    """Run a script on every engine side by side, each with dice of its own."""
    with ThreadPoolExecutor(len(engines)) as pool:
        for done in [pool.submit(script, engine, Dice(f"{name} {engine.name}")) for engine in engines]:
            done.result()


async def detected(server: EngineServer) -> EndpointFacts:
    """What the server says of itself."""
    config = EndpointConfig(EndpointId("a"), server.url)
    async with Registry([config], asyncio.get_running_loop().time) as registry:
        await registry.detect_all(deadline_s=60)
        [seen] = registry.snapshot()
    assert seen.facts is not None, seen.unhealthy_reason
    return seen.facts


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, figures: Figures) -> Iterator[list[Engine]]:
    """Two engines and what follows them; the figures of all asks come at the end."""
    ports = [free_port() for _ in range(6)]
    addresses = [
        {"endpoint": f"tcp://*:{ports[0]}", "replay_endpoint": f"tcp://*:{ports[1]}", "topic": "kv@a"},
        {"endpoint": f"tcp://127.0.0.1:{ports[2]}", "replay_endpoint": f"tcp://127.0.0.1:{ports[3]}", "topic": "kv@b"},
    ]
    engines = [
        Engine(name, VllmOptions(port, KV_BLOCKS, processor, address), tmp_path_factory.mktemp(f"vllm-{name}"))
        for name, port, processor, address in zip("ab", ports[4:], _two_processors(), addresses, strict=True)
    ]
    with ExitStack() as stack:
        loop = stack.enter_context(Loop())
        for engine in engines:
            stack.callback(engine.running.close)
        all_at_once(engines, lambda engine, _: engine.start(), "start")
        for engine in engines:
            engine.post("/v1/completions", {"prompt": EARLY, "max_tokens": 1})
            engine.follower = KvFollower(loop, asyncio.run(detected(engine.up)))
        for engine in engines:
            engine.index.wait_in_step()
        yield engines
        add_figures(engines, figures)


def _two_processors() -> tuple[str, str]:
    available = sorted(os.sched_getaffinity(0))
    return str(available[0]), str(available[-1])


def add_figures(engines: Sequence[Engine], figures: Figures) -> None:
    """What came in, and how far expectations were off."""
    for engine in engines:
        heard, counters = engine.index.heard, engine.index.counters
        found = (
            f"{counters.batches} batches, {heard.stored_blocks} blocks stored, {heard.removed_blocks} removed, "
            f"{heard.clears} clears, {counters.replays} replays, {counters.gaps} gaps, {counters.resyncs} resyncs"
        )
        figures.add("vllm", f"KV events of engine {engine.name}", found)
    asks = [ask for engine in engines for ask in engine.asks]
    equal = sum(ask.expected_tokens == ask.reported_tokens for ask in asks)
    error = sum(abs(ask.expected_tokens - ask.reported_tokens) for ask in asks) / len(asks)
    reported = sum(ask.reported_tokens for ask in asks)
    figures.add_share(
        "vllm",
        "prompts whose cached tokens KV events foretold",
        equal,
        len(asks),
        least=1.0,
        more=f"{reported:,} tokens reported, mean absolute error {error:.2f} tokens",
    )


def check(engines: Sequence[Engine], what: str, *, least_reported: int) -> None:
    """All asks called so came out as expected, and found at least so many tokens in a cache."""
    asks = [ask for engine in engines for ask in engine.asks if ask.what.endswith(what)]
    assert [ask for ask in asks if ask.expected_tokens != ask.reported_tokens] == []
    assert sum(ask.reported_tokens for ask in asks) >= least_reported
    assert asks


def test_a_real_vllm_says_where_its_events_are(fleet: list[Engine]) -> None:
    binds, connects = (asyncio.run(detected(engine.up)).event_sources for engine in fleet)
    [url, replay_url, other_url, other_replay_url] = (
        str(engine.options.kv_events[key]) for engine in fleet for key in ("endpoint", "replay_endpoint")
    )
    assert binds == (EventSourceFacts(0, url.replace("*", "127.0.0.1"), replay_url.replace("*", "127.0.0.1"), "kv@a"),)
    assert connects == (EventSourceFacts(0, other_url.replace("127.0.0.1", "*"), other_replay_url, "kv@b"),)


def test_what_came_before_anybody_listened_is_replayed(fleet: list[Engine]) -> None:
    for engine in fleet:
        engine.ask("not heard", EARLY)
    check(fleet, "not heard", least_reported=2 * 3 * VLLM_BLOCK_TOKENS)
    assert all(engine.index.counters.replays > 0 for engine in fleet)


def test_a_shared_prefix_is_expected_under_each_question_and_a_salt_shares_nothing(fleet: list[Engine]) -> None:
    def script(engine: Engine, dice: Dice) -> None:
        prefix = dice.tokens(10 * VLLM_BLOCK_TOKENS + 7)
        questions = [prefix + dice.tokens(length) for length in (1, 20, 57, 25, 90)]
        for question in (*questions, *questions):
            engine.ask("shared prefix", question)
        for salt in ("tenant-a", "tenant-b", "tenant-a", "tenant-b"):
            engine.ask("salted", questions[0], salt=salt)

    all_at_once(fleet, script, "shared")
    check(fleet, "shared prefix", least_reported=2 * 9 * 10 * VLLM_BLOCK_TOKENS)
    check(fleet, "salted", least_reported=2 * 2 * 10 * VLLM_BLOCK_TOKENS)
    asks = [ask for engine in fleet for ask in engine.asks if ask.what.endswith("salted")]
    assert [ask.reported_tokens > 0 for ask in asks] == [False, False, True, True] * 2


def test_a_conversation_is_expected_with_its_answers(fleet: list[Engine]) -> None:
    def script(engine: Engine, dice: Dice) -> None:
        prompt = dice.tokens(100)
        for _ in range(6):
            answer = engine.ask("grown by its answer", prompt, tokens=50)
            prompt = [*prompt, *answer, *dice.tokens(11)]
        messages = [{"role": "system", "content": "You keep the shelves of a small library. " * 8}]
        for question in ("Where are the books on gravity?", "And those on rivers?", "Which of them is the oldest?"):
            messages.append({"role": "user", "content": question})
            messages.append({"role": "assistant", "content": engine.chat("chat", messages)})

    all_at_once(fleet, script, "chat")
    check(fleet, "grown by its answer", least_reported=2 * 5 * 3 * VLLM_BLOCK_TOKENS)
    check(fleet, "chat", least_reported=2 * 2 * 2 * VLLM_BLOCK_TOKENS)


def test_evictions_are_followed(fleet: list[Engine]) -> None:
    removed_before = [engine.index.heard.removed_blocks for engine in fleet]

    def script(engine: Engine, dice: Dice) -> None:
        stems = [dice.tokens(length) for length in (300, 200, 400, 250, 350)]
        asked: list[list[int]] = []
        for _ in range(32):
            if asked and dice.random.random() < 0.5:
                prompt = dice.random.choice(asked[-12:])
            else:
                prompt = dice.random.choice(stems) + dice.tokens(dice.random.randrange(10, 300))
                asked.append(prompt)
            salt = dice.random.choice([None, None, None, "tenant-a"])
            engine.ask("a full cache", prompt, salt=salt, tokens=dice.random.choice([1, 1, 40]))

    all_at_once(fleet, script, "evictions")
    check(fleet, "a full cache", least_reported=2 * 32 * 2 * VLLM_BLOCK_TOKENS)
    for engine, before in zip(fleet, removed_before, strict=True):
        assert engine.index.heard.removed_blocks - before > KV_BLOCKS


def test_prompts_that_run_side_by_side_are_followed(fleet: list[Engine]) -> None:
    def script(engine: Engine, dice: Dice) -> None:
        prefix = dice.tokens(150)
        prompts = [prefix + dice.tokens(60) for _ in range(8)]
        with ThreadPoolExecutor(len(prompts)) as pool:
            bodies = [{"prompt": prompt, "max_tokens": 30} for prompt in prompts]
            assert len(list(pool.map(lambda body: engine.post("/v1/completions", body), bodies))) == len(prompts)
        engine.index.catch_up()
        for prompt in prompts:
            engine.ask("after a crowd", prompt)

    all_at_once(fleet, script, "crowd")
    check(fleet, "after a crowd", least_reported=2 * 8 * 4 * VLLM_BLOCK_TOKENS)


def test_an_emptied_cache_is_followed_once_the_engine_says_so(fleet: list[Engine]) -> None:
    def script(engine: Engine, dice: Dice) -> None:
        known = dice.tokens(5 * VLLM_BLOCK_TOKENS)
        engine.ask("before the clear", known)
        answer = httpx.post(f"{engine.up.url}/reset_prefix_cache", timeout=60)
        assert answer.raise_for_status().json() == {"success": True}
        # vLLM tells of it in its next step, and not before.
        engine.ask("a first prompt after the clear", dice.tokens(40))
        engine.ask("after the clear", known)
        engine.ask("known again", known)

    clears_before = [engine.index.heard.clears for engine in fleet]
    all_at_once(fleet, script, "clear")
    check(fleet, "after the clear", least_reported=0)
    assert not any(ask.reported_tokens for engine in fleet for ask in engine.asks if "after the clear" in ask.what)
    check(fleet, "known again", least_reported=2 * 4 * VLLM_BLOCK_TOKENS)
    assert [engine.index.heard.clears for engine in fleet] == [before + 1 for before in clears_before]


def test_killed_engines_come_back_empty_and_are_followed_on(fleet: list[Engine]) -> None:
    known = {engine.name: Dice(f"known {engine.name}").tokens(5 * VLLM_BLOCK_TOKENS) for engine in fleet}

    def before(engine: Engine, _: Dice) -> None:
        engine.ask("before the kill", known[engine.name])
        assert engine.index.expected_tokens(known[engine.name], None) > 0
        resyncs = engine.index.counters.resyncs
        engine.kill()
        engine.index.until(lambda: not engine.index.is_in_step)
        engine.start()
        engine.index.until(lambda: engine.index.counters.resyncs > resyncs and engine.index.is_in_step)

    def after(engine: Engine, dice: Dice) -> None:
        # Known already now, though the new process has not said a word.
        for what in ("after the restart", "known to the new process"):
            engine.ask(what, known[engine.name])

    all_at_once(fleet, before, "kill")
    all_at_once(fleet, after, "restart")
    assert not any(ask.reported_tokens for engine in fleet for ask in engine.asks if "after the restart" in ask.what)
    check(fleet, "after the restart", least_reported=0)
    check(fleet, "known to the new process", least_reported=2 * 4 * VLLM_BLOCK_TOKENS)
