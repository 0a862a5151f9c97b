"""Token ids from an engine: its recorded answers over a real port."""

import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from backends import EndpointConfig, EndpointFacts, EndpointId, EndpointSnapshot, TokenizeForm, UpstreamClient
from gateway.engine_tokens import LOOP_SAFE_ANSWER_BYTES, RemoteTokenizer
from gateway.surrogates import Decoder, decode
from gateway.tokenize_forms import BYTES_PER_TOKEN, TEMPLATE_TOKENS
from prefix_index.prompt import PromptView
from tests.hostile import HostileServer, Peer

CAPTURES = Path(__file__).parents[1] / "data" / "captures"
HELLO = PromptView(prompt="Hello 123", add_special_tokens=True)


@dataclass
class Engine:
    """Answers every question with `answer`; `asked` counts them."""

    url: str = ""
    status: int = 200
    answer: bytes = (CAPTURES / "vllm-0.32-tokenize-prompt.json").read_bytes()
    asked: list[bytes] = field(default_factory=list)

    async def serve(self, peer: Peer) -> None:
        self.asked.append(await peer.read_request())
        head = b"HTTP/1.1 %d X\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % (self.status, len(self.answer))
        await peer.send(head + self.answer)

    async def tokens(self, tokenizer: RemoteTokenizer, prompt: PromptView = HELLO) -> bytes | None:
        facts = EndpointFacts("vllm", tokenize=TokenizeForm.MESSAGES)
        endpoint = EndpointSnapshot(EndpointId("e0"), healthy=True, generation=1, facts=facts)
        return await tokenizer.tokens_of("m", prompt, [endpoint])


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    engine = Engine()
    async with HostileServer([engine.serve]) as server:
        engine.url = server.url
        yield engine


@pytest.fixture
async def tokenizer(engine: Engine) -> AsyncIterator[RemoteTokenizer]:
    async with UpstreamClient() as client:
        yield RemoteTokenizer(client, lambda _: EndpointConfig(EndpointId("e0"), engine.url))


async def test_recorded_answers_become_packed_ids(engine: Engine, tokenizer: RemoteTokenizer) -> None:
    assert await engine.tokens(tokenizer) == b"".join(n.to_bytes(4, "little") for n in (19556, 216, 33, 34, 35))
    engine.answer = (CAPTURES / "vllm-0.32-tokenize-messages.json").read_bytes()
    chat = await engine.tokens(tokenizer, PromptView(messages=[{"role": "user", "content": "Hello"}]))
    assert chat is not None
    assert len(chat) == 35 * 4


async def test_the_same_question_is_asked_once(engine: Engine, tokenizer: RemoteTokenizer) -> None:
    first, second = await engine.tokens(tokenizer), await engine.tokens(tokenizer)
    assert first == second is not None
    assert len(engine.asked) == 1


DEEP = b"[" * 100_000 + b"]" * 100_000


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"[]",
        b"{}",
        b'{"tokens": "abc"}',
        b'{"tokens": [-1]}',
        b'{"tokens": [4294967296]}',
        b'{"tokens": [99999999999999999999999999]}',
        b'{"tokens": [1.5]}',
        b'{"tokens": [{}]}',
        b'{"tokens": "\xff"}',
        b'{"x": "\\ud83d", "tokens": []',
        b'{"x": ' + DEEP + b', "tokens": [1]}',
        b'{"tokens": ' + DEEP + b"}",
    ],
)
async def test_an_answer_of_another_shape_is_none_and_is_not_kept(
    engine: Engine, tokenizer: RemoteTokenizer, answer: bytes
) -> None:
    engine.answer = answer
    assert await engine.tokens(tokenizer) is None
    assert await engine.tokens(tokenizer) is None
    assert len(engine.asked) == 2


async def test_an_answer_longer_than_the_question_can_have_tokens_is_not_read(
    engine: Engine, tokenizer: RemoteTokenizer
) -> None:
    tokens = BYTES_PER_TOKEN * (TEMPLATE_TOKENS + 1000) // len(b"1,")
    engine.answer = b'{"tokens":[%s1]}' % (b"1," * (tokens - 1))
    assert await engine.tokens(tokenizer) is None
    long = await engine.tokens(tokenizer, PromptView(prompt="x" * 10_000))
    assert long is not None
    assert len(long) == 4 * tokens


@pytest.mark.parametrize(("length", "off_the_loop"), [(10, False), (LOOP_SAFE_ANSWER_BYTES, True)])
async def test_a_long_answer_is_read_off_the_loop(
    length: int, off_the_loop: bool, engine: Engine, tokenizer: RemoteTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_in: list[threading.Thread] = []

    def noted(decoder: Decoder[object], body: bytes) -> object:
        read_in.append(threading.current_thread())
        return decode(decoder, body)

    monkeypatch.setattr("gateway.engine_tokens.decode", noted)
    engine.answer = b'{"padding":"%s","tokens":[7]}' % (b"x" * length)
    assert await engine.tokens(tokenizer) == b"\x07\x00\x00\x00"
    assert [thread is not threading.current_thread() for thread in read_in] == [off_the_loop]


async def test_a_refusal_is_none(engine: Engine, tokenizer: RemoteTokenizer) -> None:
    engine.status = 400
    assert await engine.tokens(tokenizer) is None


async def test_who_did_not_answer_is_asked_after_all_others_until_it_has(engine: Engine) -> None:
    facts = EndpointFacts("vllm", tokenize=TokenizeForm.MESSAGES)
    e0, e1 = (EndpointSnapshot(EndpointId(name), healthy=True, generation=1, facts=facts) for name in ("e0", "e1"))
    asked: list[bool] = []
    answers = False

    async def serve(peer: Peer) -> None:
        asked.append(answers)
        if answers:
            await engine.serve(peer)
        else:
            await peer.read_request()

    def prompt(number: int) -> PromptView:
        return PromptView(prompt=f"Hello {number}", add_special_tokens=True)

    async with HostileServer([serve]) as broken, UpstreamClient() as client:
        urls = {"e0": broken.url, "e1": engine.url}
        tokenizer = RemoteTokenizer(client, lambda id: EndpointConfig(EndpointId(id), urls[id]))
        assert await tokenizer.tokens_of("m", prompt(0), [e0, e1]) is None
        for number in range(1, 4):
            assert await tokenizer.tokens_of("m", prompt(number), [e0, e1]) is not None
        assert (asked, len(engine.asked)) == ([False], 3)

        answers = True
        assert await tokenizer.tokens_of("m", prompt(4), [e0]) is not None
        assert await tokenizer.tokens_of("m", prompt(5), [e0, e1]) is not None
        assert asked == [False, True, True]
