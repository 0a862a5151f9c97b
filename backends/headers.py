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
_NAMES_NOTHING = frozenset({b"", b"close", b"keep-alive"})
"""What nearly every `Connection` field says: no further field is meant by it."""


def request_headers(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Fields of a client's request to pass to an endpoint, to which come `own_headers`. O(total bytes)."""
    return tuple(_without([(name.lower(), value) for name, value in headers], _NOT_FORWARDED))


def own_headers(api_key: str | None) -> Headers:
    """Fields that we add for an endpoint: its own key as a bearer token, and `Accept-Encoding: identity`.

    Host and Content-Length belong to the connection and are in neither.
    """
    negotiated = (b"accept-encoding", b"identity")
    return (negotiated,) if api_key is None else (negotiated, (b"authorization", b"Bearer " + api_key.encode()))


def response_headers(fields: list[tuple[bytes, bytes]]) -> Headers:
    """Fields of an endpoint's answer to pass to the client, where the names in `fields` are in lower case.

    Content-Length stays: the body is not changed here.
    """
    return tuple(_without(fields, _NOT_RETURNED))


def _without(fields: list[tuple[bytes, bytes]], dropped: frozenset[bytes]) -> list[tuple[bytes, bytes]]:
    kept = [field for field in fields if field[0] not in dropped]
    if len(kept) == len(fields):
        return kept
    said = [value.lower() for name, value in fields if name == b"connection"]
    if _NAMES_NOTHING.issuperset(said):
        return kept
    named = {token.strip() for value in said for token in value.split(b",")}
    return [field for field in kept if field[0] not in named]
