"""What of a head the gateway in front is to change, so that it says what ours would have said. Pure.

as it came + as it is to be --> fields to set, fields to remove
                                less those that belong to a connection, which is the gateway's
"""

from typing import Final

from backends.headers import HOP_BY_HOP, own_lines, request_lines
from gateway.epp.types import DESTINATION, Changes
from gateway.types import Headers

_THE_GATEWAYS: Final = HOP_BY_HOP | {b"host", b"date", b"server", b"expect"}
_DESTINATION: Final = DESTINATION.encode()


def without_pseudo(fields: Headers) -> Headers:
    """The fields proper; the authority is `host`, as it is to a server of HTTP/1.1."""
    authority = value_of(fields, b":authority")
    host = () if authority is None or value_of(fields, b"host") is not None else ((b"host", authority),)
    return (*(field for field in fields if not field[0].startswith(b":")), *host)


def value_of(fields: Headers, name: bytes) -> bytes | None:
    """The first value of that name."""
    return next((value for known, value in fields if known == name), None)


def request_changes(came: Headers, wanted: Headers, api_key: str | None, addresses: tuple[str, ...]) -> Changes:
    """For a request that is to reach the engine with the fields that our own client would have sent for `wanted`."""
    lines = (*request_lines(wanted), *own_lines(api_key))
    after = tuple((name, value) for name, _, value in (line.partition(b": ") for line in lines))
    changes = _changes(came, tuple(field for field in after if field[0] != _DESTINATION))
    to_set = (*changes.set, (_DESTINATION, ",".join(addresses).encode()))
    remove = tuple(name for name in changes.remove if name not in (_DESTINATION, b"content-length"))
    return Changes(to_set, remove)


def answer_changes(came: Headers, status: int, wanted: Headers) -> Changes:
    """For an answer that is to have this status and these fields."""
    changes = _changes(came, wanted)
    if value_of(came, b":status") in (None, b"%d" % status):
        return changes
    return Changes(((b":status", b"%d" % status), *changes.set), changes.remove)


def immediate_fields(fields: Headers) -> Headers:
    """Those of an answer of our own; its length is counted by the gateway."""
    return tuple(field for field in fields if field[0] not in _THE_GATEWAYS and field[0] != b"content-length")


def _changes(came: Headers, wanted: Headers) -> Changes:
    before, after = _by_name(came), _by_name(wanted)
    to_set = tuple((name, value) for name, values in after.items() if before.get(name) != values for value in values)
    return Changes(to_set, tuple(name for name in before if name not in after))


def _by_name(fields: Headers) -> dict[bytes, list[bytes]]:
    found: dict[bytes, list[bytes]] = {}
    for name, value in fields:
        if name not in _THE_GATEWAYS and not name.startswith(b":"):
            found.setdefault(name, []).append(value)
    return found
