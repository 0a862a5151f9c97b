"""Token ids from an engine: its recorded answers over a real port."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from backends import EndpointConfig, EndpointFacts, EndpointId, EndpointSnapshot, UpstreamClient
from gateway.engine_tokens import RemoteTokenizer
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
        facts = EndpointFacts("vllm", has_tokenize=True)
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


@pytest.mark.parametrize("answer", [b"", b"[]", b"{}", b'{"tokens": "abc"}', b'{"tokens": [-1]}', b'{"tokens": [{}]}'])
async def test_an_answer_of_another_shape_is_none_and_is_not_kept(
    engine: Engine, tokenizer: RemoteTokenizer, answer: bytes
) -> None:
    engine.answer = answer
    assert await engine.tokens(tokenizer) is None
    assert await engine.tokens(tokenizer) is None
    assert len(engine.asked) == 2


async def test_a_refusal_is_none(engine: Engine, tokenizer: RemoteTokenizer) -> None:
    engine.status = 400
    assert await engine.tokens(tokenizer) is None
