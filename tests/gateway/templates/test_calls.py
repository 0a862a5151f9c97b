"""Requests call templates by name, through a running gateway, and the engine gets messages."""

import asyncio
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.gateway.conftest import RunningGateway, StartGateway, settled
from tests.gateway.scripted_engine import ScriptedEngine, answer_chat, scripted_engine
from tests.gateway.templates.files import ORDERED, folder, support
from tests.until import until

ONLY_ACME = "name: secret\nversion: 1\ntenants: [acme]\ntext: x\n"


@dataclass(frozen=True, slots=True)
class Running:
    gateway: RunningGateway
    engine: ScriptedEngine
    http: httpx.AsyncClient
    folder: Path

    async def chat(self, body: dict[str, Any] | bytes) -> httpx.Response:
        return await self._post("/v1/chat/completions", body)

    async def respond(self, body: dict[str, Any] | bytes) -> httpx.Response:
        return await self._post("/v1/responses", body)

    async def _post(self, path: str, body: dict[str, Any] | bytes) -> httpx.Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.http.post(path, content=content, headers={"content-type": "application/json"})

    @property
    def last(self) -> dict[str, Any]:
        """The body that the engine got last."""
        found: dict[str, Any] = json.loads(self.engine.bodies[-1])
        return found


@pytest.fixture
async def running(start_gateway: StartGateway, tmp_path: Path) -> AsyncIterator[Running]:
    place = folder(tmp_path / "templates", support=support(), secret=ONLY_ACME)
    async with scripted_engine(answer_chat("Hi")) as engine:
        gateway = await asyncio.to_thread(start_gateway, engine.url, templates_dir=place, templates_poll_s=0.02)
        async with httpx.AsyncClient(base_url=gateway.url, timeout=30) as http:
            yield Running(gateway, engine, http, place)


async def test_a_chat_calls_a_template_and_the_rest_of_its_body_stays_to_the_byte(running: Running) -> None:
    variables = b'{"question": "What is {{ now }}?", "now": "10:00"}'
    body = b'{ "model":"m", "template" : "support@1","seed": 1.0, "variables":' + variables + b', "x":"\\u00e9" }'
    assert (await running.chat(body)).status_code == 200
    (sent,) = running.engine.bodies
    assert sent.startswith(b'{"model":"m","seed": 1.0,"x":"\\u00e9" ,"messages":[')
    assert running.last["messages"] == [
        {"role": "system", "content": ORDERED.format(now="10:00")},
        {"role": "user", "content": "What is {{ now }}?"},
    ]


@pytest.mark.parametrize("messages", [b"null", b"[]", b"[ \n]"])
async def test_clients_that_insist_on_messages_give_none(running: Running, messages: bytes) -> None:
    body = b'{"model": "m", "messages": ' + messages + b', "template": "support", "variables": {"question": "Why?"}}'
    assert (await running.chat(body)).status_code == 200
    assert [one["content"] for one in running.last["messages"]][1:] == ["Why?"]


async def test_a_call_is_counted_and_its_row_names_the_template(running: Running) -> None:
    await running.chat({"model": "m", "template": "support", "variables": {"question": "Why?"}})
    await settled(running.gateway, 1)
    with closing(sqlite3.connect(running.gateway.ledger_path)) as connection:
        ((tags,),) = connection.execute("SELECT tags FROM requests")
    assert json.loads(tags) == {"template": "support@1"}
    labels = {"template": "support", "version": "1"}
    assert await asyncio.to_thread(running.gateway.metric, "prefixgate_template_calls_total", **labels) == 1


async def test_a_response_calls_a_template_by_its_prompt_and_its_input_comes_behind(running: Running) -> None:
    prompt = {"id": "support", "version": "1", "variables": {"question": "Why?", "history": []}}
    for given in ("And then?", [{"role": "user", "content": "And then?"}]):
        assert (await running.respond({"model": "m", "prompt": prompt, "input": given})).status_code == 200
        contents = [one["content"] for one in running.last["messages"]]
        assert contents == [ORDERED.format(now="never"), "Why?", "And then?"]
    assert (await running.respond({"model": "m", "prompt": prompt})).status_code == 200
    assert len(running.last["messages"]) == 2


async def test_a_prompt_that_another_service_keeps_is_none_of_ours(running: Running) -> None:
    answer = await running.respond({"model": "m", "prompt": {"id": "pmpt_123"}})
    assert "template" not in answer.text


async def test_messages_of_a_call_stand_between_those_of_the_template(running: Running) -> None:
    history = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    await running.chat({"model": "m", "template": "support", "variables": {"question": "Why?", "history": history}})
    assert [one["content"] for one in running.last["messages"]][1:] == ["Hi", "Hello", "Why?"]


REFUSED: list[tuple[dict[str, Any], int, str, str]] = [
    ({"template": "nothing"}, 404, "template_not_found", "template"),
    ({"template": "support@9"}, 404, "template_not_found", "template"),
    ({"template": "secret"}, 403, "template_not_allowed", "template"),
    ({"template": "support"}, 400, "template_variables", "variables"),
    ({"template": "support", "variables": {"question": "", "x": 1}}, 400, "template_variables", "variables"),
    ({"template": "support", "variables": {"question": "", "history": 1}}, 400, "template_variables", "variables"),
    ({"template": "support", "variables": []}, 400, "invalid_request", "variables"),
    ({"template": "support", "messages": [[]]}, 400, "invalid_request", "messages"),
    ({"template": "support", "messages": [{"role": "user", "content": "x"}]}, 400, "invalid_request", "messages"),
    ({"template": "a/b"}, 400, "invalid_request", "template"),
    ({"template": 1}, 400, "invalid_request", "template"),
]


@pytest.mark.parametrize(("body", "status", "code", "param"), REFUSED)
async def test_a_call_that_cannot_be_served_is_told_what_is_wrong(
    running: Running, body: dict[str, Any], status: int, code: str, param: str
) -> None:
    answer = await running.chat({"model": "m", **body})
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (status, code, param)
    assert running.engine.bodies == []


async def test_what_is_wrong_with_a_prompt_of_a_response_is_told_by_its_own_path(running: Running) -> None:
    for prompt, param in (({"id": "nothing"}, "prompt.id"), ({"id": "support"}, "prompt.variables")):
        answer = await running.respond({"model": "m", "prompt": prompt})
        assert answer.json()["error"]["param"] == param


@pytest.mark.parametrize("body", [b'{"template": "support"', b'{"template": "support", "messages": 1', b'["template"]'])
async def test_a_body_that_is_no_request_is_told_so_as_always(running: Running, body: bytes) -> None:
    answer = await running.chat(body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")


async def test_a_call_behind_a_byte_order_mark_is_one(running: Running) -> None:
    body = b'\xef\xbb\xbf{"model": "m", "template": "support", "variables": {"question": "\\ud83d"}}'
    assert (await running.chat(body)).status_code == 200
    assert running.last["messages"][-1]["content"] == "\ufffd"


async def test_a_call_in_a_body_that_is_no_utf8_is_refused(running: Running) -> None:
    answer = await running.chat(b'{"template": "support", "variables": {"question": ""}, "x": "\xff"}')
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")


async def test_a_request_that_only_mentions_templates_passes_untouched(running: Running) -> None:
    body = b'{"model": "m", "messages": [{"role": "user", "content": "the \\"template\\""}], "template": null}'
    assert (await running.chat(body)).status_code == 200
    assert running.engine.bodies[-1].startswith(body[:-1])


async def test_a_new_version_is_called_as_soon_as_its_file_is_there(running: Running) -> None:
    folder(running.folder, newer=support("2", tone="quick"))
    call = {"model": "m", "template": "support@2", "variables": {"question": "Why?"}}
    await until(lambda: running.chat(call), lambda found: found.status_code != 404)
    assert "quick" in running.last["messages"][0]["content"]


async def test_a_version_that_is_broken_later_stays_in_force_and_health_says_so(running: Running) -> None:
    folder(running.folder, support="name: [")
    await until(lambda: running.http.get("/health"), lambda found: "templates" in found.json()["degraded"])
    call = {"model": "m", "template": "support", "variables": {"question": "Why?"}}
    assert (await running.chat(call)).status_code == 200


async def test_a_long_call_is_rendered_too(running: Running) -> None:
    question = "word " * 40_000
    await running.chat({"model": "m", "template": "support", "variables": {"question": question}})
    assert running.last["messages"][-1]["content"] == question


async def test_without_a_folder_a_template_is_a_field_like_any_other(start_gateway: StartGateway) -> None:
    async with scripted_engine(answer_chat("Hi")) as engine:
        gateway = await asyncio.to_thread(start_gateway, engine.url)
        async with httpx.AsyncClient(base_url=gateway.url) as http:
            answer = await http.post("/v1/chat/completions", json={"model": "m", "template": "support"})
            assert answer.json()["error"]["param"] == "messages"
