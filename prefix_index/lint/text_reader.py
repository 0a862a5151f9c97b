"""Files that are prompts themselves: Jinja, Markdown, plain text."""

from collections.abc import Iterator
from typing import Final

from prefix_index.layout import Certainty, spots
from prefix_index.lint.parts import Where, in_file, judged_parts, tokens_of
from prefix_index.lint.rules import BEFORE_FIXED
from prefix_index.lint.text_templates import parts_of_text
from prefix_index.lint.types import Asked, Every, Finding, Level, Read

_NOTE: Final = "written out in the text: a fault only if the text is written anew for each call"


def read_text(path: str, text: str, asked: Asked) -> Read:
    """A file that is one prompt."""
    return Read(list(judged_text(text, in_file(path, text), asked)))


def judged_text(text: str, where: Where, asked: Asked) -> Iterator[Finding]:
    """A prompt: its slots, and what stands in it as if it had been put in for one call."""
    parts = parts_of_text(text)
    yield from judged_parts(parts, where, asked)
    if any(part.is_slot for part in parts):
        return
    for spot in spots(text):
        rule = BEFORE_FIXED.get(spot.cause)
        lost = asked.whole_blocks(tokens_of(text[spot.end :], asked))
        if rule is not None and spot.certainty >= Certainty.CUED and lost:
            yield Finding(
                rule,
                where(spot.start),
                cause=spot.cause,
                lost_tokens=lost,
                every=Every.CHANGE,
                level=Level.NOTE,
                prompt=where(0).text(),
                note=_NOTE,
            )
            return
