"""vLLM with the NIXL connector, pull mode: two calls one after the other.

    prefill   body, no stream, one token, kv_transfer_params {do_remote_decode: true, ...}
              answer: a token that nobody gets, and kv_transfer_params: which blocks lie where
    decode    the client's body and those params, unchanged: they are opaque, and have grown with every other release
              it pulls the blocks and computes the last token of the prompt itself

The prefill engine keeps the blocks until they were pulled, or their lease ends (30 s, 480 s in older releases): a
decode call frees them, be it for one token. A client that leaves the prefill call before its answer leaves none behind.

What the decode engine reports as cached, going by the source of the two releases: from 0.31 on the number that the
prefill engine wrote into the params; before, what it pulled itself, so all of the prompt or all but its end.
"""

import re
from dataclasses import replace
from typing import Final

import msgspec

from backends.disaggregated.answers import answer_of, written_object
from backends.disaggregated.types import DecodeReport, Edit, Handed, Handover, Meeting, as_prefill

_ASKED: Final = (
    b'{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,'
    b'"remote_block_ids":null,"remote_host":null,"remote_port":null}'
)
_ANSWER_FIELDS: Final = frozenset(
    {"stream", "stream_options", "max_tokens", "max_completion_tokens", "min_tokens", "kv_transfer_params"}
)
_TELLS_PREFILL_HITS: Final = (0, 31)
_VERSION: Final = re.compile(r"(\d+)\.(\d+)")


class _Params(msgspec.Struct):
    """The one member that is read."""

    remote_prefill_cached_tokens: object = None


def _prefill(_: Meeting, is_chat: bool) -> Edit:
    # Chat completions prefer the newer of the two names, and older releases know the older one alone.
    put = {"stream": b"false", "max_tokens": b"1", "kv_transfer_params": _ASKED}
    if is_chat:
        put["max_completion_tokens"] = b"1"
    return Edit(_ANSWER_FIELDS, put)


def _read(body: bytes) -> Handed:
    answer = answer_of(body)
    params = written_object(answer.kv_transfer_params)
    finished = answer.choices[0].finish_reason if answer.choices else None
    return Handed(
        params=params, ended=params is None and finished not in (None, "length"), cached_tokens=_cached_in(params)
    )


def _decode(_: Meeting, handed: Handed, _is_chat: bool) -> Edit:
    assert handed.params is not None, "without them there is no decode leg"
    return Edit(frozenset({"kv_transfer_params"}), {"kv_transfer_params": handed.params})


def _reports(seen: DecodeReport) -> tuple[int, int] | None:
    found = _VERSION.match(seen.version or "")
    if found is None:
        return None
    told = seen.handed.cached_tokens
    if (int(found[1]), int(found[2])) >= _TELLS_PREFILL_HITS and told is not None:
        return told, told
    return max(seen.prompt_tokens - seen.block_tokens, 0), seen.prompt_tokens


def _cached_in(params: bytes | None) -> int | None:
    if params is None:
        return None
    try:
        told = msgspec.json.decode(params, type=_Params).remote_prefill_cached_tokens
    except msgspec.DecodeError:
        return None
    return told if isinstance(told, int) and not isinstance(told, bool) and told >= 0 else None


NIXL: Final = Handover(
    name="nixl",
    is_concurrent=False,
    keeps_prompt=True,
    decodes_alone=True,
    decode_frees=True,
    prefill=_prefill,
    read=_read,
    decode=_decode,
    reports=_reports,
)

REFERENCE: Final = replace(NIXL, name="reference", reports=as_prefill)
"""The reference engine, in the same words: what P found is what its D reports, in every version."""
