"""The openai package reads what we say: an HTTP server that serves responses out of scripted chat answers."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import openai
import pytest
from openai.types.responses import Response, ResponseFunctionToolCall

from gateway.edge.responses import ResponsesTranslation
from tests.gateway.edge.responses_answers import DONE, USAGE, Json, chunk, event, fragment, plain, usage_event

FUNCTION: Any = {"type": "function", "name": "find", "parameters": {"type": "object"}, "strict": False}
SHELL: Any = {"type": "custom", "name": "shell", "description": "Runs."}
TOLD_ALL = USAGE | {"prompt_tokens_details": {"cached_tokens": 16, "cache_write_tokens": 4}}
MESSAGE: Json = {
    "reasoning_content": "So so",
    "content": "I look.",
    "tool_calls": [
        {"id": "a", "function": {"name": "find", "arguments": '{"x":1}'}},
        {"id": "b", "function": {"name": "shell", "arguments": '{"input": "ls"}'}},
        {"id": "c", "function": {"name": "find", "arguments": "{}"}},
    ],
}
CHUNKS = [
    chunk({"role": "assistant", "content": ""}),
    chunk({"reasoning_content": "So"}),
    chunk({"reasoning_content": " so"}),
    chunk({"content": "I "}),
    chunk({"content": "look."}),
    chunk(fragment(0, id="a", name="find", arguments='{"x"')),
    chunk(fragment(1, id="b", name="shell", arguments='{"input"')),
    chunk(fragment(2, id="c", name="find", arguments="{")),
    chunk(fragment(0, arguments=":1}")),
    chunk(fragment(1, arguments=': "ls"}')),
    chunk(fragment(2, arguments="}")),
]


class _Served(BaseHTTPRequestHandler):
    """Answers each request with the scripted chat answer, translated; with another status than 200, a refusal."""

    protocol_version = "HTTP/1.0"
    ends_with: ClassVar[str] = "tool_calls"
    status: ClassVar[int] = 200
    broken: ClassVar[bool] = False

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        translation = ResponsesTranslation()
        translation.chat_form(body)
        answer = translation.translator(body)
        self.send_response(self.status)
        self.send_header("content-type", "text/event-stream" if body.get("stream") else "application/json")
        self.end_headers()
        if self.status != 200:
            self.wfile.write(answer.refusal(self.status, b'{"message": "too long", "type": "BadRequestError"}'))
        elif not body.get("stream"):
            self.wfile.write(answer.whole(json.dumps(plain(MESSAGE, self.ends_with, TOLD_ALL)).encode()))
        else:
            last = event({"error": {"message": "boom"}}) if self.broken else chunk({}, self.ends_with)
            for one in [*CHUNKS, last]:
                self.wfile.write(answer.feed(one))
            self.wfile.write(answer.end((b"" if self.broken else usage_event(TOLD_ALL)) + DONE))

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: tests are quiet."""


@contextmanager
def client(**script: object) -> Iterator[openai.OpenAI]:
    handler = type("Scripted", (_Served,), script)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}/v1"
        try:
            with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:
                yield client
        finally:
            server.shutdown()
            thread.join()


ASKED: Any = {"model": "asked", "input": "Find x.", "instructions": "Be brief.", "tools": [FUNCTION, SHELL]}


def as_json(response: Response) -> Json:
    """What a response says; the package adds `parsed` to what it has read from a stream."""
    told = response.model_dump()
    for item in told["output"]:
        item.pop("parsed_arguments", None)
        for part in item.get("content") or []:
            part.pop("parsed", None)
    return told


@pytest.mark.parametrize("finish", ["tool_calls", "length"])
def test_a_stream_ends_in_the_response_that_a_plain_answer_is(finish: str) -> None:
    with client(ends_with=finish) as openai_client:
        whole = openai_client.responses.create(**ASKED)
        with openai_client.responses.create(**ASKED, stream=True) as stream:
            events = list(stream)
    last = events[-1]
    assert last.type in ("response.completed", "response.incomplete")
    assert as_json(last.response) == as_json(whole)
    assert [event.sequence_number for event in events] == list(range(len(events)))


def test_the_packages_own_reader_of_streams_puts_the_same_together() -> None:
    with client() as openai_client:
        whole = openai_client.responses.create(**ASKED)
        with openai_client.responses.stream(**ASKED) as stream:
            texts = [event.delta for event in stream if event.type == "response.output_text.delta"]
            final = stream.get_final_response()
    assert "".join(texts) == final.output_text == whole.output_text == "I look."
    assert as_json(final) == as_json(whole)


def test_every_event_is_one_that_the_package_knows() -> None:
    with client() as openai_client, openai_client.responses.create(**ASKED, stream=True) as stream:
        for one in stream:
            # Parsed leniently by the package, strictly here: a field that is missing or wrong fails.
            type(one).model_validate(json.loads(one.model_dump_json()), strict=False)


def test_a_call_read_by_the_package_can_be_answered() -> None:
    with client() as openai_client:
        response = openai_client.responses.create(**ASKED)
    call = response.output[2]
    assert isinstance(call, ResponseFunctionToolCall)
    items: list[Any] = [item.model_dump(exclude_none=True) for item in response.output]
    items += [{"type": "function_call_output", "call_id": call.call_id, "output": "3"}]
    messages = ResponsesTranslation().chat_form({**ASKED, "input": items})["messages"]
    assert isinstance(messages, list)
    assert [message["role"] for message in messages] == ["system", "assistant", "tool"]
    turn = messages[1]
    assert (turn["reasoning"], turn["content"]) == ("So so", "I look.")
    asked = [(one["id"], one["function"]["name"], one["function"]["arguments"]) for one in turn["tool_calls"]]
    assert asked == [("a", "find", '{"x":1}'), ("b", "shell", '{"input": "ls"}'), ("c", "find", "{}")]


def test_a_stream_that_fails_ends_in_a_response_that_failed() -> None:
    with client(broken=True) as openai_client, openai_client.responses.create(**ASKED, stream=True) as stream:
        last = list(stream)[-1]
    assert last.type == "response.failed"
    assert last.response.error is not None
    assert last.response.error.message == "boom"


def test_a_refusal_is_the_packages_error_with_the_servers_words() -> None:
    with client(status=400) as openai_client, pytest.raises(openai.BadRequestError, match="too long"):
        openai_client.responses.create(**ASKED)
