"""Bodies of requests: bytes to fields, fields to what is wanted; what the engine would refuse is refused."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from backends.simulated.serving.errors import Refused
from backends.simulated.serving.types import Json, Prompt
from backends.simulated.serving.words import Vocabulary

_NO_JSON: Final = "the body is not valid JSON"
_WHOLE: Final = re.compile(r"[+-]?\d+")
_TRUTHS: Final = {
    **dict.fromkeys(("1", "true", "t", "yes", "y", "on"), True),
    **dict.fromkeys(("0", "false", "f", "no", "n", "off"), False),
}
_NAMES: Final = {int: "integer", str: "string", bool: "boolean", float: "number", list: "list", dict: "object"}


class Fields:
    """The fields of a body, by type. A wrong one is refused with `status`, in words that name it.

    `is_lax`: "3" is a number and "yes" a truth, as for engines that read their bodies with pydantic.
    """

    def __init__(self, raw: bytes, status: int = 400, kind: str = "Bad Request", *, is_lax: bool = True) -> None:
        self.status = status
        self.kind = kind
        self.is_lax = is_lax
        try:
            decoded = msgspec.json.decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError):
            decoded = _lenient(raw, status, kind)
        if not isinstance(decoded, dict):
            raise Refused(status, "the body must be a JSON object", kind=kind, param="body")
        self.all: Json = decoded

    def refuse(self, message: str, param: str) -> Refused:
        """A refusal of this body."""
        return Refused(self.status, message, kind=self.kind, param=param)

    def number(self, name: str) -> int | None:
        """A whole number, if it is there and not null."""
        value = self.all.get(name)
        if value is None:
            return None
        if self.is_lax and isinstance(value, str) and _WHOLE.fullmatch(value.strip()):
            return int(value)
        if self.is_lax and isinstance(value, float) and value.is_integer():
            return int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._wrong(name, int)
        return value

    def real(self, name: str) -> float | None:
        """A number, if it is there and not null."""
        value = self.all.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise self._wrong(name, float)
        return value

    def text(self, name: str) -> str | None:
        """A string, if it is there and not null."""
        value = self.all.get(name)
        if value is not None and not isinstance(value, str):
            raise self._wrong(name, str)
        return value

    def flag(self, name: str) -> bool:
        """A boolean, False where it is not there."""
        value = self.all.get(name)
        if self.is_lax and not isinstance(value, bool) and str(value).lower() in _TRUTHS:
            return _TRUTHS[str(value).lower()]
        if value is not None and not isinstance(value, bool):
            raise self._wrong(name, bool)
        return bool(value)

    def mapping(self, name: str) -> Json | None:
        """An object, if it is there and not null."""
        value = self.all.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self._wrong(name, dict)
        return value

    def required(self, name: str) -> object:
        """A field that must be there."""
        if self.all.get(name) is None:
            message = f"1 validation error:\n  {{'type': 'missing', 'loc': 'body.{name}', 'msg': 'Field required'}}"
            raise self.refuse(message, f"body.{name}")
        return self.all[name]

    def _wrong(self, name: str, kind: type) -> Refused:
        return self.refuse(f"{name}: input should be a valid {_NAMES[kind]}", f"body.{name}")


def _lenient(raw: bytes, status: int, kind: str) -> object:
    """Python's own parser takes lone surrogates, as engines written in Python do."""
    try:
        return json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise Refused(status, f"{_NO_JSON}: {error}", kind=kind) from None


def messages_of(fields: Fields) -> list[Mapping[str, object]]:
    """At least one message, each an object with a role."""
    messages = fields.required("messages")
    if not isinstance(messages, list) or not messages:
        raise fields.refuse("messages must be a list with at least one message", "messages")
    for message in messages:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise fields.refuse("each message is an object with a role", "messages")
    return messages


def chat_prompt(fields: Fields, vocabulary: Vocabulary, *, is_open: bool) -> Prompt:
    """The rendered chat."""
    text = vocabulary.render(messages_of(fields), fields.all, is_open=is_open)
    return Prompt(tuple(vocabulary.encode(text)), text)


def text_prompts(fields: Fields, vocabulary: Vocabulary, name: str = "prompt") -> tuple[Prompt, ...]:
    """One prompt or several, as text or as token ids."""
    given = fields.required(name)
    if isinstance(given, str):
        return (text_prompt(given, vocabulary),)
    if isinstance(given, list) and given:
        if all(isinstance(one, str) for one in given):
            return tuple(text_prompt(one, vocabulary) for one in given)
        if _are_ids(given):
            return (Prompt(tuple(given), None),)
        if all(isinstance(one, list) and one and _are_ids(one) for one in given):
            return tuple(Prompt(tuple(one), None) for one in given)
    raise fields.refuse(f"{name} must be a text, token ids, or a list of either", name)


def text_prompt(text: str, vocabulary: Vocabulary) -> Prompt:
    """A text as it is."""
    return Prompt(tuple(vocabulary.encode(text)), text)


def ids_prompt(fields: Fields, name: str) -> Prompt:
    """Token ids under another name than `prompt`."""
    given = fields.required(name)
    if not isinstance(given, list) or not given or not _are_ids(given):
        raise fields.refuse(f"{name} must be a list of token ids", name)
    return Prompt(tuple(given), None)


def _are_ids(values: Sequence[object]) -> bool:
    return all(isinstance(one, int) and not isinstance(one, bool) and 0 <= one < 2**32 for one in values)
