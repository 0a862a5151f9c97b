"""A call of another worker, served by an application of ours as if it had come in over HTTP."""

from typing import Final

from gateway.team.messages import Call, Reply
from gateway.wire import ASGIApp, Message, Receive, Scope

MOST_BODY_BYTES: Final = 4 * 1024 * 1024
"""Of a call: the longest that the admin API takes is a template's file, of a million characters."""


async def answered(app: ASGIApp, call: Call) -> Reply:
    """What the application answers; all of it is held. Raises what the application raises."""
    status, content_type = 500, b""
    pieces: list[bytes] = []
    incoming: list[Message] = [{"type": "http.request", "body": call.body, "more_body": False}]

    async def receive() -> Message:
        return incoming.pop() if incoming else {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        nonlocal status, content_type
        if message["type"] == "http.response.start":
            status = message["status"]
            content_type = dict(message["headers"]).get(b"content-type", b"")
        else:
            pieces.append(message.get("body", b""))

    await app(_scope(call), receive, send)
    return Reply(status, content_type, b"".join(pieces))


async def call_of(scope: Scope, receive: Receive) -> Call | None:
    """The call that a request is, its body read; None for one whose body is longer than any that workers pass on."""
    headers = tuple((name, value) for name, value in scope["headers"])
    body = bytearray()
    more = True
    while more:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > MOST_BODY_BYTES:
            return None
        more = message.get("more_body", False)
    return Call(scope["method"], scope["path"], scope["query_string"], headers, bytes(body))


def _scope(call: Call) -> Scope:
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": call.method,
        "scheme": "http",
        "path": call.path,
        "raw_path": call.path.encode(),
        "root_path": "",
        "query_string": call.query,
        "headers": list(call.headers),
        "client": None,
        "server": None,
    }
