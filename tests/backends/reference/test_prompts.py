"""What becomes of messages and prompts: the same ids in /tokenize and in an answer, whatever the fields."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from backends.reference.embedded import RunningEngine, run_engine
from backends.reference.types import EngineConfig
from backends.reference.weights import ModelWeights
from tests.backends.reference.test_server import ABORTED, CHAT, TEXT, Json, events, eventually, is_idle, metric, post

CHAT_PATH = "/v1/chat/completions"
TALKATIVE = (
    "{% for m in messages %}[{{ m.role }}|{{ m.content }}]{% endfor %}"
    "{% if documents %}{{ documents | tojson }}{% endif %}{{ reasoning_effort }}{{ mood }}"
    "{% if add_generation_prompt %}>{% endif %}"
)
USER: Json = {"role": "user", "content": "Go"}


@pytest.fixture
def talkative(micro: ModelWeights, tmp_path: Path) -> Iterator[RunningEngine]:
    """An engine whose template writes everything it is given."""
    template = tmp_path / "talkative.jinja"
    template.write_text(TALKATIVE)
    with run_engine(EngineConfig(model="tiny", kv_blocks=64, chat_template=template), micro) as running:
        yield running


async def text_of(engine: RunningEngine, fields: Json) -> str:
    """The prompt of a chat as text; its ids are those of /tokenize and of a real answer alike."""
    async with httpx.AsyncClient(base_url=engine.url, timeout=30) as client:
        tokens = (await post(client, "/tokenize", fields)).json()["tokens"]
        answer = (await post(client, CHAT_PATH, CHAT | fields | {"return_token_ids": True})).json()
        assert answer["prompt_token_ids"] == tokens
        return str((await post(client, "/detokenize", {"tokens": tokens})).json()["prompt"])


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "[user|Go]>"),
        ({"documents": [{"title": "A", "text": "é"}]}, '[user|Go][{"title": "A", "text": "é"}]>'),
        ({"reasoning_effort": "low"}, "[user|Go]low>"),
        ({"chat_template_kwargs": {"mood": "calm"}}, "[user|Go]calm>"),
        ({"chat_template_kwargs": {"add_generation_prompt": False}}, "[user|Go]>"),
        ({"add_generation_prompt": False}, "[user|Go]"),
        ({"add_generation_prompt": False, "continue_final_message": True}, "[user|Go"),
        ({"messages": [{"role": "developer", "content": "Be brief."}, USER]}, "[developer|Be brief.][user|Go]>"),
        (
            {"messages": [{"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "a"}, "b"]}]},
            "[tool|a\nb]>",
        ),
    ],
)
async def test_each_field_reaches_the_template(talkative: RunningEngine, fields: Json, text: str) -> None:
    assert await text_of(talkative, {"messages": [USER]} | fields) == text


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"continue_final_message": True}, "continue_final_message"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
        ({"documents": "all"}, "body.documents"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}]}, "messages"),
    ],
)
async def test_what_no_template_can_make_is_refused_by_both(
    shared_client: httpx.AsyncClient, change: Json, param: str
) -> None:
    for path in (CHAT_PATH, "/tokenize"):
        error = (await post(shared_client, path, CHAT | change, 400)).json()["error"]
        assert error["param"] == param


@pytest.mark.parametrize(
    ("spelled", "read"),
    [
        (r"a\ud83db", "a\N{REPLACEMENT CHARACTER}b"),
        (r"a\udc00\ud83d", "a" + 2 * "\N{REPLACEMENT CHARACTER}"),
        (r"a\ud83e\udd9cb", "a🦜b"),
    ],
)
async def test_lone_surrogates_are_replaced_one_by_one(
    shared_client: httpx.AsyncClient, spelled: str, read: str
) -> None:
    calls = [{"id": "1", "type": "function", "function": {"name": "f", "arguments": f'{{"x": "{spelled}"}}'}}]
    messages = json.dumps([USER, {"role": "assistant", "content": None, "tool_calls": calls}, {**USER, "content": "#"}])
    raw = f'{{"messages": {messages.replace("#", spelled)}}}'.encode()
    answer = await shared_client.post("/tokenize", content=raw)
    assert answer.status_code == 200, answer.text
    text = (await post(shared_client, "/detokenize", {"tokens": answer.json()["tokens"]})).json()["prompt"]
    assert text.count(read) == 2


async def test_a_byte_order_mark_is_no_fault(shared_client: httpx.AsyncClient) -> None:
    raw = b"\xef\xbb\xbf" + json.dumps({"messages": [USER]}).encode()
    assert (await shared_client.post("/tokenize", content=raw)).status_code == 200


async def test_a_surrogate_in_a_salt_stops_no_engine(shared_client: httpx.AsyncClient) -> None:
    raw = json.dumps(CHAT | {"cache_salt": "\ud83d"}).encode()
    assert (await shared_client.post(CHAT_PATH, content=raw)).status_code == 200
    assert (await shared_client.get("/health")).status_code == 200


async def test_several_prompts_are_answered_each_and_billed_together(client: httpx.AsyncClient) -> None:
    texts = ["Once upon a time, in a library, there was", "Gravity is", "a"]
    alone = [(await post(client, "/v1/completions", TEXT | {"prompt": text})).json() for text in texts]
    ids = [(await post(client, "/tokenize", {"prompt": text})).json()["tokens"] for text in texts]
    for prompt in (texts, ids):
        body = (await post(client, "/v1/completions", TEXT | {"prompt": prompt, "return_token_ids": True})).json()
        assert [choice["index"] for choice in body["choices"]] == [0, 1, 2]
        assert [choice["text"] for choice in body["choices"]] == [one["choices"][0]["text"] for one in alone]
        assert [choice["prompt_token_ids"] for choice in body["choices"]] == ids
        for key in ("prompt_tokens", "completion_tokens", "total_tokens"):
            assert body["usage"][key] == sum(one["usage"][key] for one in alone)


async def test_several_prompts_stream_side_by_side(shared_client: httpx.AsyncClient) -> None:
    body = TEXT | {"prompt": ["Once upon a time", "Gravity is"], "stream_options": {"include_usage": True}}
    whole = (await post(shared_client, "/v1/completions", body)).json()
    lines = await events(shared_client, "/v1/completions", body)
    *chunks, last = [json.loads(line) for line in lines[:-1]]
    for choice in whole["choices"]:
        mine = [one for chunk in chunks for one in chunk["choices"] if one["index"] == choice["index"]]
        assert "".join(one["text"] for one in mine) == choice["text"]
        assert [one["finish_reason"] for one in mine] == [None] * (len(mine) - 1) + ["length"]
    assert last["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"] == 10
    assert last["usage"]["prompt_tokens"] == whole["usage"]["prompt_tokens"]


async def test_a_client_that_leaves_takes_all_its_prompts_with_it(
    served: RunningEngine, client: httpx.AsyncClient
) -> None:
    body = TEXT | {"prompt": ["Once upon a time", "Gravity is"], "max_tokens": 900, "stream": True}
    async with client.stream("POST", "/v1/completions", json=body) as answer:
        await anext(answer.aiter_lines())
    await eventually(lambda: is_idle(served))
    assert await metric(client, ABORTED) == 2


async def test_there_are_no_embeddings(shared_client: httpx.AsyncClient) -> None:
    await post(shared_client, "/v1/embeddings", {"model": "tiny", "input": "Hi"}, 404)
