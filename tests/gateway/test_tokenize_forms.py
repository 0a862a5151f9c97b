"""What each engine is asked for token ids, and what its answers say: recorded ones, over a real port."""

import json
from array import array
from collections.abc import Mapping

import pytest

from backends import EndpointConfig, EndpointFacts, EndpointId, EndpointSnapshot, TokenizeForm, UpstreamClient
from backends.dialects import DIALECTS, facts
from gateway.engine_tokens import RemoteTokenizer
from prefix_index.prompt import PromptView
from tests.backends.dialects.engine_pages import CAPTURES
from tests.hostile import HostileServer, Peer

TEXT = PromptView(prompt="Hello 123", add_special_tokens=True)
CHAT = PromptView(messages=[{"role": "user", "content": "Where are the books on gravity?"}])
IDS = b'{"tokens":[19556,216,33,34,35]}'
ITEMS = b'[{"id":19556,"text":"Hello","start":0,"stop":5},{"id":216,"text":" ","start":5,"stop":6}]'
RENDERED = json.loads((CAPTURES / "llamacpp-apply-template.json").read_text())["prompt"]

Asked = list[tuple[str, object]]


async def tokens(
    form: TokenizeForm, prompt: PromptView, answers: Mapping[str, bytes], path: str = "/tokenize"
) -> tuple[list[int] | None, Asked]:
    """The ids that a server of these answers by path gives, and what it was asked."""
    asked: Asked = []

    async def serve(peer: Peer) -> None:
        head, _, body = (await peer.read_request()).partition(b"\r\n\r\n")
        at = head.split(b" ", 2)[1].decode()
        asked.append((at, json.loads(body)))
        answer = answers.get(at, b"")
        status = 200 if answer else 404
        await peer.send(b"HTTP/1.1 %d X\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % (status, len(answer)))
        await peer.send(answer)

    facts = EndpointFacts("x", tokenize=form, tokenize_path=path)
    endpoint = EndpointSnapshot(EndpointId("e"), healthy=True, generation=1, facts=facts)
    async with HostileServer([serve]) as server, UpstreamClient() as client:
        remote = RemoteTokenizer(client, lambda _: EndpointConfig(EndpointId("e"), server.url))
        found = await remote.tokens_of("m", prompt, [endpoint])
        again = await remote.tokens_of("m", prompt, [endpoint])
    assert found == again
    return None if found is None else array("I", found).tolist(), asked


async def test_llamacpp_renders_a_chat_and_then_splits_its_text() -> None:
    recorded = (CAPTURES / "llamacpp-apply-template.json").read_bytes()
    ids, asked = await tokens(TokenizeForm.TEMPLATE, CHAT, {"/apply-template": recorded, "/tokenize": IDS})
    assert ids == [19556, 216, 33, 34, 35]
    [(first, chat), (second, text)] = asked
    assert (first, second) == ("/apply-template", "/tokenize")
    assert isinstance(chat, dict)
    assert chat["messages"] == CHAT.messages
    assert text == {"model": "m", "content": RENDERED, "add_special": True, "parse_special": True}


async def test_llamacpps_texts_are_asked_at_once() -> None:
    ids, asked = await tokens(TokenizeForm.TEMPLATE, TEXT, {"/tokenize": IDS})
    assert ids == [19556, 216, 33, 34, 35]
    assert asked == [("/tokenize", {"model": "m", "content": "Hello 123", "add_special": True, "parse_special": True})]


async def test_ids_with_pieces_are_of_another_form_and_none() -> None:
    pieces = (CAPTURES / "llamacpp-tokenize-pieces.json").read_bytes()
    ids, _ = await tokens(TokenizeForm.TEMPLATE, TEXT, {"/tokenize": pieces})
    assert ids is None


async def test_a_template_that_cannot_be_had_is_none() -> None:
    ids, asked = await tokens(TokenizeForm.TEMPLATE, CHAT, {"/tokenize": IDS})
    assert ids is None
    assert {path for path, _ in asked} == {"/apply-template"}


async def test_tgi_gives_a_list_for_a_text_and_one_inside_an_object_for_a_chat() -> None:
    ids, asked = await tokens(TokenizeForm.INPUTS, TEXT, {"/tokenize": ITEMS})
    assert (ids, asked) == ([19556, 216], [("/tokenize", {"inputs": "Hello 123", "add_special_tokens": True})])
    chat = b'{"tokenize_response":%s,"templated_text":"x"}' % ITEMS
    ids, asked = await tokens(TokenizeForm.INPUTS, CHAT, {"/chat_tokenize": chat})
    assert (ids, asked) == ([19556, 216], [("/chat_tokenize", {"model": "m", "messages": CHAT.messages})])


async def test_an_engine_that_splits_texts_alone_is_not_asked_for_chats() -> None:
    path = "/_internal/tokenize"
    ids, asked = await tokens(TokenizeForm.TEXT_ONLY, TEXT, {path: IDS}, path)
    assert (ids, asked) == ([19556, 216, 33, 34, 35], [(path, {"prompt": "Hello 123"})])
    assert await tokens(TokenizeForm.TEXT_ONLY, CHAT, {path: IDS}, path) == (None, [])


@pytest.mark.parametrize("prompt", [PromptView(prompt=[1, 2]), PromptView(messages=CHAT.messages, documents=[{}])])
@pytest.mark.parametrize("form", TokenizeForm)
async def test_token_ids_and_documents_are_asked_of_no_engine(form: TokenizeForm, prompt: PromptView) -> None:
    assert await tokens(form, prompt, {}) == (None, [])


@pytest.mark.parametrize("answer", [b"[]", b"{}", b"[1]", b'{"tokens":[-1]}', b'{"prompt":7}', b"<html>", b'"text"'])
@pytest.mark.parametrize("form", TokenizeForm)
async def test_an_answer_of_another_form_is_none(form: TokenizeForm, answer: bytes) -> None:
    anywhere = dict.fromkeys(("/tokenize", "/apply-template", "/chat_tokenize"), answer)
    ids, _ = await tokens(form, TEXT if form is TokenizeForm.TEXT_ONLY else CHAT, anywhere)
    assert ids is None


def test_where_each_dialect_is_asked() -> None:
    paths = {dialect.name: facts(dialect, {}, {}, {}).tokenize_path for dialect in DIALECTS}
    assert {path for name, path in paths.items() if name != "trtllm"} == {"/tokenize"}
    assert paths["trtllm"] == "/_internal/tokenize"
