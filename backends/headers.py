"""Which header fields pass between client and endpoint. Pure functions over raw fields.

    client --(credentials, hop-by-hop, negotiation)--x   everything else --> endpoint
    endpoint --(hop-by-hop, cookies)--x                  everything else --> client

Hop-by-hop fields belong to one connection (RFC 9110 section 7.6.1): the fixed set and every field that `Connection`
names. Credentials of a client are for the gateway and never reach an engine. Compression is negotiated away, since a
compressed stream cannot be metered as it passes. `Expect` is answered by our own server.
"""

from collections.abc import Iterable

from backends.types import Headers

HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-authentication-info",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
CREDENTIALS = frozenset({b"authorization", b"x-api-key", b"api-key", b"cookie"})
SET_BY_US = frozenset({b"host", b"content-length", b"accept-encoding", b"expect"})

_NOT_FORWARDED = HOP_BY_HOP | CREDENTIALS | SET_BY_US
_NOT_RETURNED = HOP_BY_HOP | {b"set-cookie"}


def request_headers(headers: Iterable[tuple[bytes, bytes]], api_key: str | None) -> Headers:
    """Fields to send to an endpoint, without Host and Content-Length, which belong to the connection.

    The endpoint's own key is added as a bearer token, and `Accept-Encoding: identity`. O(total bytes).
    """
    passed = list(_without(headers, _NOT_FORWARDED))
    passed.append((b"accept-encoding", b"identity"))
    if api_key is not None:
        passed.append((b"authorization", b"Bearer " + api_key.encode()))
    return tuple(passed)


def response_headers(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Fields of an endpoint's answer to pass to the client; Content-Length stays, the body is not changed here."""
    return tuple(_without(headers, _NOT_RETURNED))


def _without(headers: Iterable[tuple[bytes, bytes]], dropped: frozenset[bytes]) -> Iterable[tuple[bytes, bytes]]:
    fields = [(name.lower(), value) for name, value in headers]
    named = {token.strip().lower() for name, value in fields if name == b"connection" for token in value.split(b",")}
    return (item for item in fields if item[0] not in dropped and item[0] not in named)
