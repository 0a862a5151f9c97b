r"""Lone surrogates in JSON: half a character, as `\ud83d`, which JSON can spell and UTF-8 cannot.

    "a\ud83d"  -->  "a\ufffd"        a pair, \ud83d\ude00, stays; so does \\ud83d, a backslash and five letters

Clients send them where they cut a text inside an emoji, engines send them where a token is half of one. Engines read
them, our decoder refuses them, so what we look into is repaired first: with U+FFFD, one each, which is also what the
tokens of such a text are computed from. Only our view is repaired; bytes that pass are passed as they came.
"""

import re
from typing import Final, Protocol, TypeVar

import msgspec

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)

UNREADABLE: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What reading JSON can raise: no JSON or another form of it, no UTF-8, nested too deeply."""

_ESCAPES = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\.", re.DOTALL
)


class Decoder(Protocol[_T_co]):
    """A JSON decoder of msgspec."""

    def decode(self, buf: bytes, /) -> _T_co:
        """The value; raises `msgspec.DecodeError` for what is no JSON."""


def decode(decoder: Decoder[_T], body: bytes) -> _T:
    """What `decoder` makes of `body`, with lone surrogates read as U+FFFD. Raises what the decoder raises. O(body)."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        repaired = without_lone_surrogates(body)
        if repaired == body:
            raise
        return decoder.decode(repaired)


def without_lone_surrogates(body: bytes) -> bytes:
    """`body`, JSON, with each escape of a lone surrogate made one of U+FFFD. O(body)."""
    return _ESCAPES.sub(lambda found: found[0] if found[1] is None else rb"\ufffd", body)
