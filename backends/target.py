"""Where an endpoint is, as a client needs to know it, and how a request to it begins.

    https://[::1]:8443/base        POST /base/v1/x?y               method, base path, and the path as received
    `-tls   `-host,port `-base     HTTP/1.1                        `own`: the same for every request, made once
                                   host: [::1]:8443                |
                                   accept-encoding: identity       |
                                   authorization: Bearer key       |
                                   x-client-field: bytes           what `backends.headers` lets pass, bytes unchanged
                                   content-length: 17

Nothing of a request can end a line or the head: a path or field with CR, LF or NUL is refused before anything is sent.
"""

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from backends.errors import InvalidEndpoint
from backends.headers import own_lines, request_lines
from backends.types import EndpointConfig, UpstreamRequest

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_WITH_BODY: Final = frozenset({"POST", "PUT", "PATCH"})
"""Methods whose lack of a body is said: a server may otherwise wait for one."""


@dataclass(frozen=True, slots=True)
class Target:
    """An endpoint's address and what every request to it has in common.

    `host` is a name or an IP address without brackets, `server_name` whom we expect there; `own` the
    rest of the request line and the lines that we add, with `own_ends` line ends in it.
    """

    host: str
    port: int
    tls: bool
    server_name: str
    base_path: str
    own: bytes
    own_ends: int


def target_of(endpoint: EndpointConfig) -> Target:
    """The target that an endpoint's URL names. Raises `InvalidEndpoint` where its host cannot be a name."""
    parts = urlsplit(endpoint.url)
    assert parts.hostname is not None, "EndpointConfig checks it"
    try:
        host = parts.hostname if parts.hostname.isascii() else parts.hostname.encode("idna").decode("ascii")
    except UnicodeError:
        raise InvalidEndpoint(endpoint.id, "the URL's host is no name that can be looked up") from None
    port = _DEFAULT_PORTS[parts.scheme] if parts.port is None else parts.port
    server_name = endpoint.server_name or host
    named = f"[{server_name.partition('%')[0]}]" if ":" in server_name else server_name
    if port != _DEFAULT_PORTS[parts.scheme]:
        named = f"{named}:{port}"
    own = [b"HTTP/1.1", b"host: " + named.encode(), *own_lines(endpoint.api_key)]
    return Target(host, port, parts.scheme == "https", server_name, parts.path, b"\r\n".join(own), len(own) - 1)


def request_head(target: Target, request: UpstreamRequest) -> bytes:
    """The head of a request, with the empty line that ends it. O(its bytes).

    Raises `ValueError` where a path or field would end its line.
    """
    line = f"{request.method} {target.base_path}{request.path} ".encode("latin-1")
    if line.count(b" ") != 2:
        raise ValueError("a path with a space cannot be sent")
    parts = [target.own, *request_lines(request.headers)]
    if request.body or request.method in _WITH_BODY:
        parts.append(b"content-length: %d" % len(request.body))
    head = line + b"\r\n".join(parts)
    ends = len(parts) - 1 + target.own_ends
    if head.count(b"\n") != ends or head.count(b"\r") != ends or b"\0" in head:
        raise ValueError("a path or header field with CR, LF or NUL cannot be sent")
    return head + b"\r\n\r\n"
