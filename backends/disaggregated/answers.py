"""What any prefill leg's answer may hold: one reading for the three families. Pure."""

from typing import Final

import msgspec

_MISSING: Final = msgspec.Raw()


class Choice(msgspec.Struct):
    """The first and only choice."""

    finish_reason: str | None = None
    disaggregated_params: msgspec.Raw = _MISSING


class Answer(msgspec.Struct):
    """The members that matter; what they hold stays as it was written."""

    choices: list[Choice] = []
    kv_transfer_params: msgspec.Raw = _MISSING
    prompt_token_ids: msgspec.Raw = _MISSING
    usage: msgspec.Raw = _MISSING


def answer_of(body: bytes) -> Answer:
    """The answer in a body; an empty one where it is none, or could not be handed on. O(body)."""
    try:
        body.decode()  # members that are only passed over are not looked at for that
        return msgspec.json.decode(body, type=Answer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Answer()


def written(raw: msgspec.Raw) -> bytes | None:
    """The bytes of a member; None where it is missing or null."""
    value = bytes(raw)
    return None if value in (b"", b"null") else value


def written_object(raw: msgspec.Raw) -> bytes | None:
    """The bytes of a member that is a JSON object; None where it is missing, or anything else."""
    value = bytes(raw)
    return value if value.startswith(b"{") else None
