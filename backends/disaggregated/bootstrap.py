"""SGLang: both legs at once, which meet in a room at the prefill engine's bootstrap server.

    prefill   body, no stream, bootstrap_host, bootstrap_port, bootstrap_room: read to its end and dropped
    decode    the client's body and the same three: its answer is the client's

The room is a number of this request alone. A decode engine takes no request without one, and its prefix cache is off by
default, so it is not taken to hold what it was sent. An error of one leg ends the other: a connection that is closed
aborts the request behind it. The prefill engine's count of cached tokens travels with the cache, and the decode engine
reports that.
"""

from typing import Final

import msgspec

from backends.disaggregated.answers import answer_of, written
from backends.disaggregated.types import Edit, Handed, Handover, Meeting, as_prefill

_MEETING_FIELDS: Final = frozenset({"bootstrap_host", "bootstrap_port", "bootstrap_room"})


def _meeting(meeting: Meeting) -> dict[str, bytes]:
    return {
        "bootstrap_host": msgspec.json.encode(meeting.host),
        "bootstrap_port": msgspec.json.encode(meeting.port),
        "bootstrap_room": msgspec.json.encode(meeting.number),
    }


def _prefill(meeting: Meeting, _is_chat: bool) -> Edit:
    return Edit(_MEETING_FIELDS | {"stream", "stream_options"}, {"stream": b"false", **_meeting(meeting)})


def _read(body: bytes) -> Handed:
    return Handed(usage=written(answer_of(body).usage))


def _decode(meeting: Meeting, _: Handed, _is_chat: bool) -> Edit:
    put = _meeting(meeting)
    if meeting.prefill_rank is not None:  # else it is the room modulo the ranks
        put["disagg_prefill_dp_rank"] = msgspec.json.encode(meeting.prefill_rank)
    return Edit(_MEETING_FIELDS, put)


BOOTSTRAP: Final = Handover(
    name="bootstrap",
    is_concurrent=True,
    keeps_prompt=False,
    decodes_alone=False,
    decode_frees=False,
    prefill=_prefill,
    read=_read,
    decode=_decode,
    reports=as_prefill,
)
