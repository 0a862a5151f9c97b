"""Fields put into, and taken out of, a JSON object's bytes without writing the rest of it anew.

    {"model": "m", "cache_salt": "x", "n" : 1.0}
                 ^^^^^^^^^^^^^^^^^^^ cut                     ^ put before the last brace: the last key wins

Everything the client wrote keeps its order, spacing, number formats, escapes and duplicate keys. A field of ours goes
to the end, so that it wins in every parser that lets the last of two equal keys win, even over a key we overlooked.

Cost: adding alone is O(1) beside the copy; a cut walks the top level once, values skipped by the C scanner of json.
"""

from collections.abc import Iterator, Mapping

from gateway.edge.json_spans import Member, members
from gateway.errors import BadRequest


def add_fields(body: bytes, fields: Mapping[str, bytes]) -> bytes:
    """`body`, a JSON object, with `fields` (name to JSON bytes) as its last members."""
    if not fields:
        return body
    head = body.rstrip(b" \t\n\r")
    assert head.endswith(b"}"), "the body was parsed as an object before"
    ours = b",".join(b'"%s":%s' % (name.encode(), value) for name, value in fields.items())
    before = head[:-1]
    comma = b"" if before.rstrip(b" \t\n\r").endswith(b"{") else b","
    return before + comma + ours + b"}"


def cut_fields(body: bytes, names: frozenset[str]) -> bytes:
    """`body` without the top-level members called one of `names`, every duplicate of them; the rest unchanged.

    Raises `BadRequest` where cutting would need a walk too deep to make.
    """
    text = body.decode()
    found = list(_members(text))
    kept = [member for member in found if member.key not in names]
    if len(kept) == len(found):
        return body
    opening = text[: text.index("{") + 1]
    closing = text[found[-1].end :]
    return (opening + ",".join(text[member.start : member.end] for member in kept) + closing).encode()


def set_field(body: bytes, name: str, value: bytes) -> bytes:
    """`body` where every top-level member called `name` has this value, JSON too; the rest unchanged."""
    text = body.decode()
    pieces, at = [], 0
    for member in _members(text):
        if member.key == name:
            pieces += [text[at : member.value_start].encode(), value]
            at = member.end
    return b"".join((*pieces, text[at:].encode())) if pieces else body


def put_in_object(body: bytes, name: str, inner: Mapping[str, bytes]) -> bytes:
    """`body` where the last top-level member called `name`, an object or null, has `inner` as its last members, in
    place of any of the same names."""
    text = body.decode()
    member = [one for one in _members(text) if one.key == name][-1]
    value = text[member.value_start : member.end].encode()
    new = add_fields(cut_fields(value, frozenset(inner)) if value.startswith(b"{") else b"{}", inner)
    return text[: member.value_start].encode() + new + text[member.end :].encode()


def _members(text: str) -> Iterator[Member]:
    """The members of the top-level object of valid JSON, in order. O(length), values are not kept."""
    try:
        yield from members(text, 0)
    except RecursionError:
        raise BadRequest("the request body is nested too deeply") from None
