"""vLLM, llama.cpp and the reference engine with the same weights, behind one model name.

    burst of conversations ──> gateway ──> vllm, llamacpp, reference      all serve
    a next turn            ──> gateway ──> where its prefix is            each kind by its own measure of what is cached
    one is killed          ──> gateway ──> the others                     nobody waits for it, and it comes back empty

vLLM and the reference engine reuse whole blocks, llama.cpp token by token what its one slot read last.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from gateway.config import load_config
from tests.engines.figures import Figures
from tests.engines.servers import (
    MODEL,
    VLLM_BLOCK_TOKENS,
    EngineServer,
    VllmOptions,
    free_port,
    llamacpp,
    reference,
    vllm,
)
from tests.gateway.conftest import LedgerRow, RunningGateway, ledger_rows, running_gateway

pytestmark = [pytest.mark.engines, pytest.mark.timeout(1800)]

KINDS = ("vllm", "llamacpp", "reference")
ANSWERED_WITHIN_S = 300.0
RULES = " ".join(f"Rule {number}: cite shelf {number * 7} and do not guess." for number in range(1, 22))
"""About 300 tokens."""

Message = dict[str, str]
Start = Callable[[], AbstractContextManager[EngineServer]]


@dataclass(slots=True)
class Trio:
    """The engines, each of which can be killed and started again at its port."""

    starts: dict[str, Start]
    running: dict[str, ExitStack] = field(default_factory=dict)
    servers: dict[str, EngineServer] = field(default_factory=dict)

    def start(self, kind: str) -> None:
        stack = ExitStack()
        self.servers[kind] = stack.enter_context(self.starts[kind]())
        self.running[kind] = stack

    def kill(self, kind: str) -> None:
        """As the kernel would: no word to anybody."""
        os.killpg(self.servers[kind].process, signal.SIGKILL)
        self.running.pop(kind).close()

    def close(self) -> None:
        for stack in self.running.values():
            stack.close()


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trio]:
    folders = {kind: tmp_path_factory.mktemp(f"mixed-{kind}") for kind in KINDS}
    ports = {kind: free_port() for kind in KINDS}
    found = Trio(
        {
            "vllm": lambda: vllm("smollm2", folders["vllm"], VllmOptions(port=ports["vllm"])),
            "llamacpp": lambda: llamacpp("smollm2", folders["llamacpp"], ports["llamacpp"]),
            "reference": lambda: reference("smollm2", folders["reference"], ports["reference"]),
        }
    )
    try:
        for kind in KINDS:
            found.start(kind)
        yield found
    finally:
        found.close()


@pytest.fixture
def gateway(trio: Trio, tmp_path: Path) -> Iterator[RunningGateway]:
    with _gateway(trio, tmp_path) as running:
        yield running


@contextmanager
def _gateway(trio: Trio, folder: Path) -> Iterator[RunningGateway]:
    (folder / "salt").write_text(os.urandom(16).hex())
    one = trio.servers["vllm"]
    flags: dict[str, object] = {
        "backends": [{"url": trio.servers[kind].url, "id": kind} for kind in KINDS],
        "poll_interval_s": 0.5,
        "ledger.path": folder / "ledger.db",
        "limits.drain_s": 2,
        "listen.port": 0,
        "models": {MODEL: {"tokenizer": one.tokenizer, "chat_template": one.chat_template}},
        "salt_secret_file": folder / "salt",
    }
    with running_gateway(load_config(None, {}, flags)) as running:
        running.http.timeout = httpx.Timeout(ANSWERED_WITHIN_S)
        yield running


@dataclass(frozen=True, slots=True)
class Turn:
    """An answered turn: the conversation so far, and who answered."""

    messages: list[Message]
    endpoint: str
    request_id: str
    text: str
    done_s: float

    def next(self, words: str) -> list[Message]:
        return [*self.messages, {"role": "assistant", "content": self.text}, {"role": "user", "content": words}]


def opening(topic: str) -> list[Message]:
    return [{"role": "system", "content": f"About {topic}. {RULES}"}, {"role": "user", "content": "Where is it?"}]


def say(http: httpx.Client, messages: list[Message], tokens: int = 4) -> Turn:
    body = {"model": MODEL, "messages": messages, "max_tokens": tokens, "temperature": 0}
    answer = http.post("/v1/chat/completions", json=body)
    assert answer.status_code == httpx.codes.OK, answer.text
    text = answer.json()["choices"][0]["message"]["content"]
    headers = answer.headers
    return Turn(messages, headers["x-prefixgate-endpoint"], headers["x-request-id"], text, time.monotonic())


def burst(gateway: RunningGateway, topics: list[str]) -> list[Turn]:
    """All conversations begin at once; their first turns, in the order in which they were answered."""
    turns: list[Turn] = []

    def one(topic: str) -> None:
        with httpx.Client(base_url=gateway.url, timeout=ANSWERED_WITHIN_S) as http:
            turns.append(say(http, opening(topic)))

    threads = [threading.Thread(target=one, args=(topic,)) for topic in topics]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(ANSWERED_WITHIN_S)
    assert len(turns) == len(topics)
    return sorted(turns, key=lambda turn: turn.done_s)


def rows_by_id(gateway: RunningGateway) -> dict[str, LedgerRow]:
    return {row.request_id: row for row in ledger_rows(gateway.ledger_path)}


def count_equal(kind: str, row: LedgerRow) -> bool:
    """Whether an engine reported what was expected, by its own measure of what is cached."""
    assert row.cached_tokens is not None
    assert row.expected_cached_tokens is not None
    if kind == "llamacpp":  # token by token, and the head that all prompts have in common: never less
        return row.expected_cached_tokens <= row.cached_tokens < row.expected_cached_tokens + VLLM_BLOCK_TOKENS
    return row.cached_tokens == row.expected_cached_tokens


def test_all_kinds_serve_and_each_conversation_stays_where_its_prefix_is(
    trio: Trio, gateway: RunningGateway, figures: Figures
) -> None:
    turns = burst(gateway, [f"topic {number}" for number in range(9)])
    served = {kind: [turn for turn in turns if turn.endpoint == kind] for kind in KINDS}
    figures.add("mixed", "first turns by engine", ", ".join(f"{kind} {len(served[kind])}" for kind in KINDS))
    assert all(served.values())

    stayed, equal = 0, 0
    for kind, before in served.items():
        last = before[-1]  # of llama.cpp's one slot, the only one that is still there
        after = say(gateway.http, last.next("And on whales?"))
        row = rows_by_id(gateway)[after.request_id]
        stayed += after.endpoint == kind
        equal += count_equal(kind, row)
        assert row.cached_tokens is not None
        figures.add(
            "mixed",
            f"second turn at {kind}",
            f"{row.prompt_tokens} prompt, {row.expected_cached_tokens} expected, {row.cached_tokens} reported",
        )
        assert row.cached_tokens >= 200, (kind, row)
    figures.add_share("mixed", "second turns where their prefix is", stayed, len(KINDS), least=1.0)
    figures.add_share(
        "mixed", "second turns with expected = reported, by each engine's measure", equal, len(KINDS), least=1.0
    )
    assert (stayed, equal) == (3, 3)


def test_one_conversation_counts_the_same_tokens_at_each_and_is_settled_once(
    trio: Trio, gateway: RunningGateway, figures: Figures
) -> None:
    body = {"model": MODEL, "messages": opening("counting"), "max_tokens": 4, "temperature": 0}
    usages, texts = {}, {}
    for kind in KINDS:
        answer = httpx.post(
            f"{trio.servers[kind].url}/v1/chat/completions", json=body, timeout=ANSWERED_WITHIN_S
        ).json()
        usages[kind] = answer["usage"]["prompt_tokens"]
        texts[kind] = answer["choices"][0]["message"]["content"]
    ours = say(gateway.http, opening("counting"))
    row = rows_by_id(gateway)[ours.request_id]
    figures.add("mixed", "answers to one prompt at temperature 0", str(len(set(texts.values()))))
    assert set(usages.values()) == {row.prompt_tokens}
    assert (row.state, row.output_tokens, row.attempts) == ("complete", 4, 1)


def test_each_is_killed_in_turn_while_the_others_serve_and_comes_back_with_nothing_cached(
    trio: Trio, gateway: RunningGateway, figures: Figures
) -> None:
    for kind in ("llamacpp", "reference", "vllm"):  # the one that starts slowest is killed last, and stays away
        held = _begun_at(gateway, kind)
        trio.kill(kind)
        began_s = time.monotonic()
        moved = say(gateway.http, held.next("Still there?"))
        figures.add(
            "mixed",
            f"{kind} is killed: next turn answered by",
            f"{moved.endpoint} in {time.monotonic() - began_s:.1f} s",
        )
        assert moved.endpoint != kind
        others = burst(gateway, [f"without {kind} {number}" for number in range(4)])
        assert kind not in {turn.endpoint for turn in others}
        if kind == "vllm":
            break
        trio.start(kind)
        _until_back(gateway, kind)
        again = _begun_at(gateway, kind)
        row = rows_by_id(gateway)[again.request_id]
        assert count_equal(kind, row), row
    rows = ledger_rows(gateway.ledger_path)
    assert {row.state for row in rows} == {"complete"}
    assert len({row.request_id for row in rows}) == len(rows)


def _begun_at(gateway: RunningGateway, kind: str) -> Turn:
    """A new conversation whose first turn this engine answered, and answered last."""
    for number in range(8):
        for turn in reversed(burst(gateway, [f"{kind} {time.monotonic()} {number} {one}" for one in range(4)])):
            if turn.endpoint == kind:
                return turn
    raise AssertionError(f"{kind} is given no work")


def _until_back(gateway: RunningGateway, kind: str) -> None:
    deadline_s = time.monotonic() + 120
    while time.monotonic() < deadline_s:
        endpoints = gateway.http.get("/health").json()
        if kind in str(endpoints) and gateway.metric("prefixgate_endpoint_healthy", endpoint=kind) == 1:
            return
        time.sleep(0.2)
    raise AssertionError(f"{kind} is not taken back")
