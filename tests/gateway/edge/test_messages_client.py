"""Anthropic's own client understands what the translation says, plain and streamed, and hears the same in both."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import anthropic
import pytest
from anthropic.types import Message
from hypothesis import given

from gateway.edge.messages_errors import error_body
from tests.gateway.edge.messages_samples import Answer, call, chunk, event, streams, translator

ASK: Any = {"model": "asked", "max_tokens": 16, "messages": [{"role": "user", "content": "Hi"}]}


@dataclass(slots=True)
class Script:
    """What the server answers next."""

    status: int = 200
    content_type: str = "application/json"
    body: bytes = b""


@contextmanager
def served(script: Script) -> Iterator[anthropic.Anthropic]:
    """A client of a server on a real port that answers whatever the script says."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(script.status)
            self.send_header("content-type", script.content_type)
            self.send_header("content-length", str(len(script.body)))
            self.end_headers()
            self.wfile.write(script.body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            url = f"http://127.0.0.1:{server.server_port}"
            with anthropic.Anthropic(base_url=url, api_key="none", max_retries=0) as client:
                yield client
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def script() -> Script:
    return Script()


@pytest.fixture(scope="module")
def client(script: Script) -> Iterator[anthropic.Anthropic]:
    with served(script) as found:
        yield found


def plain_message(client: anthropic.Anthropic, script: Script, chat: bytes) -> Message:
    script.status, script.content_type, script.body = 200, "application/json", translator().whole(chat)
    message: Message = client.messages.create(**ASK)
    return message


def streamed_message(client: anthropic.Anthropic, script: Script, events: list[bytes]) -> Message:
    answer = translator()
    script.status, script.content_type = 200, "text/event-stream"
    script.body = b"".join(answer.feed(one) for one in events[:-2]) + answer.end(b"".join(events[-2:]))
    with client.messages.stream(**ASK) as stream:
        return stream.get_final_message()


def heard(message: Message) -> dict[str, Any]:
    """What the client made of it, less what its stream helper adds to every block."""
    found = message.model_dump(exclude_none=True)
    for block in found["content"]:
        block.pop("parsed_output", None)
    return found


@given(stream=streams())
def test_a_streamed_message_is_the_plain_one(
    client: anthropic.Anthropic, script: Script, stream: tuple[Answer, list[bytes]]
) -> None:
    answer, events = stream
    assert heard(streamed_message(client, script, events)) == heard(plain_message(client, script, answer.plain()))


def test_the_client_hears_texts_calls_and_counts(client: anthropic.Anthropic, script: Script) -> None:
    events = [
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": "Let me "}),
        chunk({"content": "see."}),
        call(0, "call_a", "weather", '{"city"'),
        call(1, "call_b", "news", '{"of"'),
        call(0, arguments=': "Zürich"}'),
        call(1, arguments=': "Bern"}'),
        *Answer(finish="tool_calls").end(),
    ]
    message = streamed_message(client, script, events)
    assert [block.model_dump(exclude_none=True, exclude={"parsed_output"}) for block in message.content] == [
        {"type": "text", "text": "Let me see."},
        {"type": "tool_use", "id": "call_a", "name": "weather", "input": {"city": "Zürich"}},
        {"type": "tool_use", "id": "call_b", "name": "news", "input": {"of": "Bern"}},
    ]
    assert message.stop_reason == "tool_use"
    assert (message.usage.input_tokens, message.usage.cache_read_input_tokens, message.usage.output_tokens) == (
        36,
        64,
        7,
    )
    assert message.usage.cache_creation_input_tokens is None


def test_the_client_hears_an_error_in_a_stream(client: anthropic.Anthropic, script: Script) -> None:
    events = [chunk({"content": "Hi"}), event({"error": {"message": "The engine broke off.", "code": 500}}), b""]
    with pytest.raises(anthropic.APIStatusError, match="The engine broke off"):
        streamed_message(client, script, events)


@pytest.mark.parametrize(
    ("status", "error", "kind"),
    [
        (400, anthropic.BadRequestError, "invalid_request_error"),
        (401, anthropic.AuthenticationError, "authentication_error"),
        (404, anthropic.NotFoundError, "not_found_error"),
        (429, anthropic.RateLimitError, "rate_limit_error"),
        (500, anthropic.InternalServerError, "api_error"),
    ],
)
def test_the_client_hears_a_refusal(
    client: anthropic.Anthropic, script: Script, status: int, error: type[anthropic.APIStatusError], kind: str
) -> None:
    script.status, script.content_type, script.body = status, "application/json", error_body(status, "Too long.")
    with pytest.raises(error, match="Too long") as refused:
        client.messages.create(**ASK)
    assert refused.value.type == kind
