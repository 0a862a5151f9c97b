"""What a page of the dashboard is asked for: its parameters, each once, none that it does not know."""

from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl

from gateway.errors import BadRequest

_MOST_PARAMETERS: Final = 20
_MOST_DIGITS: Final = 8


class Asked:
    """The parameters of one request. Raises `BadRequest` for those that the page does not know."""

    def __init__(self, query_string: bytes, known: frozenset[str]) -> None:
        try:
            pairs = parse_qsl(query_string.decode("latin-1"), keep_blank_values=True, max_num_fields=_MOST_PARAMETERS)
        except ValueError:
            raise BadRequest("there are too many parameters") from None
        self._values: Mapping[str, str] = dict(pairs)
        for name in self._values:
            if name not in known:
                raise BadRequest(f"unknown parameter {name[:100]!r}", param=name[:100])
        if len(self._values) < len(pairs):
            raise BadRequest("each parameter may be given once")

    def text(self, name: str) -> str | None:
        """As given; None where it is not."""
        return self._values.get(name) or None

    def number(self, name: str, usual: int, most: int) -> int:
        """1 to `most`. Raises `BadRequest`."""
        text = self._values.get(name)
        if text is None:
            return usual
        if not (text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS and 1 <= int(text) <= most):
            raise BadRequest(f"{name} is 1 to {most}", param=name)
        return int(text)

    def choice(self, name: str, choices: Mapping[str, object]) -> str:
        """One of the choices, the first where it is not given. Raises `BadRequest`."""
        text = self._values.get(name) or next(iter(choices))
        if text not in choices:
            raise BadRequest(f"{name} is one of {', '.join(choices)}", param=name)
        return text
