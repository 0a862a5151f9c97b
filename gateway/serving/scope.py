"""The head of a request as an ASGI application gets it."""

from typing import Final
from urllib.parse import unquote

import httptools

from gateway.errors import BadRequest
from gateway.serving.reader import RequestHead
from gateway.wire import EXTENSION, Scope, ServedRequest

_ASGI: Final = {"version": "3.0", "spec_version": "2.3"}

Address = tuple[str, int | None] | None


def request_scope(head: RequestHead, request: ServedRequest, server: Address, client: Address) -> Scope:
    """The scope of a request; what it is to our own server is in `extensions`. Raises `BadRequest`."""
    target = head.target
    if not target.startswith(b"/"):
        target = _without_host(target)
    raw_path, _, query = target.partition(b"?")
    if not raw_path.isascii():
        raise BadRequest("the path of a request must be ASCII, with everything else written as %XX")
    path = raw_path.decode("ascii")
    return {
        "type": "http",
        "asgi": _ASGI,
        "http_version": head.version,
        "server": server,
        "client": client,
        "scheme": "http",
        "method": head.method,
        "root_path": "",
        "path": unquote(path) if "%" in path else path,
        "raw_path": raw_path,
        "query_string": query,
        "headers": head.fields,
        "extensions": {EXTENSION: request},
    }


def _without_host(target: bytes) -> bytes:
    """The path and query of a target with scheme and host, as proxies are asked; `*` is a path of its own."""
    if target == b"*":
        return target
    try:
        parsed = httptools.parse_url(target)
    except httptools.HttpParserInvalidURLError:
        raise BadRequest("the target of the request is no URL") from None
    return (parsed.path or b"/") + (b"?" + parsed.query if parsed.query else b"")
