"""The Jinja in which prompts are written: the sandbox of chat templates, with blocks that leave white space alone.

A variable that is missing is an error and no empty text. There is no clock, no chance and nothing to include: what
changes comes in as a variable, so that a template says by itself what is fixed in it.
"""

from collections.abc import Callable
from typing import Final

import jinja2

from prefix_index.prompt.template_language import ChatEnvironment

_NOT_HERE: Final = ("lipsum", "cycler", "joiner")
_PADDING: Final = frozenset({"ljust", "rjust", "center", "zfill", "expandtabs", "format", "format_map"})
"""Methods of texts whose result may be far longer than what is given."""
_PADDING_FILTERS: Final = ("center", "format", "indent", "wordwrap", "random")


class PromptEnvironment(ChatEnvironment):
    """As Jinja is by itself, but that it keeps the last newline."""

    intercepted_binops = frozenset({"*", "**", "%"})

    def __init__(self) -> None:
        super().__init__()
        self.trim_blocks = self.lstrip_blocks = False
        self.keep_trailing_newline = True
        self.undefined = jinja2.StrictUndefined
        for name in _NOT_HERE:
            self.globals.pop(name, None)
        for name in _PADDING_FILTERS:
            self.filters.pop(name, None)

    def call_binop(self, context: jinja2.runtime.Context, operator: str, left: object, right: object) -> object:
        """As in chat templates; and `%` is for numbers."""
        if operator == "%" and isinstance(left, str | bytes):
            raise jinja2.TemplateRuntimeError("texts are not formatted by % here")
        return super().call_binop(context, operator, left, right)

    def wrap_str_format(self, value: object) -> Callable[..., str] | None:
        """None, but for formatting, which is refused: a text of a client would say how long the result is."""
        if isinstance(getattr(value, "__self__", None), str) and getattr(value, "__name__", "") in _PADDING:
            raise jinja2.exceptions.SecurityError("texts are neither formatted nor padded here")
        return None


PROMPTS: Final = PromptEnvironment()
