"""Which header fields pass between client and endpoint. Pure functions over raw fields.

    client --(credentials, hop-by-hop, negotiation)--x   everything else --> endpoint
    endpoint --(hop-by-hop, cookies)--x                  everything else --> client

Hop-by-hop fields belong to one connection (RFC 9110 section 7.6.1): the fixed set and every field that `Connection`
names. Credentials of a client are for the gateway and never reach an engine. Compression is negotiated away, since a
compressed stream cannot be metered as it passes. `Expect` is answered by our own server.
"""

from collections.abc import Sequence

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
_NAMES_NOTHING = frozenset({b"", b"close", b"keep-alive"})
"""What nearly every `Connection` field says: no further field is meant by it."""


def request_lines(headers: Sequence[tuple[bytes, bytes]]) -> list[bytes]:
    """Fields of a client's request to pass to an endpoint, as lines without their ends. O(total bytes)."""
    lines: list[bytes] = []
    for name, value in headers:
        lower = name.lower()
        if lower not in _NOT_FORWARDED:
            lines.append(lower + b": " + value)
        elif lower == b"connection" and value.lower() not in _NAMES_NOTHING:
            return _lines_unnamed(headers)
    return lines


def own_lines(api_key: str | None) -> list[bytes]:
    """Fields that we add for an endpoint, as lines: `Accept-Encoding: identity`, its own key as a bearer token.

    Host and Content-Length belong to the connection and are in neither.
    """
    negotiated = b"accept-encoding: identity"
    return [negotiated] if api_key is None else [negotiated, b"authorization: Bearer " + api_key.encode()]


def response_headers(fields: list[tuple[bytes, bytes]]) -> Headers:
    """Fields of an endpoint's answer to pass to the client, where the names in `fields` are in lower case.

    Content-Length stays: the body is not changed here.
    """
    return _without(fields, _NOT_RETURNED)


def _without(fields: list[tuple[bytes, bytes]], dropped: frozenset[bytes]) -> Headers:
    kept = [field for field in fields if field[0] not in dropped]
    if len(kept) != len(fields):
        for name, value in fields:
            if name == b"connection" and value.lower() not in _NAMES_NOTHING:
                named = _named(fields)
                return tuple([field for field in kept if field[0] not in named])
    return tuple(kept)


def _named(fields: list[tuple[bytes, bytes]]) -> set[bytes]:
    """What the `Connection` fields say: names of fields, among others."""
    return {token.strip().lower() for name, value in fields if name == b"connection" for token in value.split(b",")}


def _lines_unnamed(headers: Sequence[tuple[bytes, bytes]]) -> list[bytes]:
    fields = [(name.lower(), value) for name, value in headers]
    return [b": ".join(field) for field in _without(fields, _NOT_FORWARDED)]
