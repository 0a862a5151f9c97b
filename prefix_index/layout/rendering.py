"""A template and the variables of a call become messages.

Variables are data: what looks like a slot in one of them stays what it is, since a template is compiled before it sees
any. A render is bounded in steps and in length (environment.py), whatever the variables are.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Final

import jinja2

from prefix_index.layout.environment import MOST_CHARS, PROMPTS
from prefix_index.layout.errors import RenderingFailed, TemplateInvalid, VariablesInvalid
from prefix_index.layout.jinja_source import refused_in
from prefix_index.layout.reading import field_of
from prefix_index.layout.template import PromptTemplate, SegmentKind, Syntax, TemplateMessage
from prefix_index.prompt.template_language import BUDGET

MAX_STEPS: Final = 100_000
"""Of all loops of a template together."""

_RENDER_ERRORS: Final = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What Python raises where data are not what a template takes them for."""

Message = Mapping[str, object]


class Renderer:
    """A template ready for calls. `defaults` are the variables that a call may leave out.

    Immutable; safe in any thread. Raises `TemplateInvalid` for what no call could fill.
    """

    def __init__(
        self, template: PromptTemplate, defaults: Mapping[str, object] | None = None, max_chars: int = MOST_CHARS
    ) -> None:
        self.template = template
        self._defaults = dict(defaults or {})
        self._max_chars = max_chars
        self._compiled = [_compiled(message, template.syntax) for message in template.messages]
        self._known = template.names | self._defaults.keys()
        self.needed = template.names - self._defaults.keys()

    def messages(self, variables: Mapping[str, object]) -> list[Message]:
        """The messages of a call: a role and a text each, or as they are in a variable of messages.

        Raises `VariablesInvalid` and `RenderingFailed`; neither holds anything of the values. Linear in the text.
        """
        missing = sorted(self.needed - variables.keys())
        unknown = sorted(variables.keys() - self._known)
        if missing or unknown:
            raise VariablesInvalid(missing, [name[:64] for name in unknown[:8]])
        given = {**self._defaults, **variables}
        found: list[Message] = []
        budget = [MAX_STEPS, self._max_chars]
        left_chars = self._max_chars
        for message, compiled in zip(self.template.messages, self._compiled, strict=True):
            if message.slot is not None:
                found += _given_messages(message.slot, given[message.slot])
                continue
            text = (
                self._of_pieces(message, given) if compiled is None else _of_jinja(compiled, given, budget, left_chars)
            )
            left_chars -= len(text)
            if left_chars < 0:
                raise RenderingFailed("it writes too much")
            found.append({"role": message.role, "content": text})
        return found

    def _of_pieces(self, message: TemplateMessage, given: Mapping[str, object]) -> str:
        if self.template.syntax is Syntax.LITERAL:
            return message.source
        return "".join(
            [
                _as_written(given[segment.names[0]])
                if segment.kind is SegmentKind.SLOT
                else segment.source.replace("{{", "{").replace("}}", "}")
                for segment in message.segments
            ]
        )


def as_text(messages: Sequence[Message]) -> str:
    """Messages as one text, for comparing prompts: what an engine's template makes of them differs in its marks."""
    return "".join(f"<|{one.get('role')}|>\n{_content(one)}\n" for one in messages)


def _content(message: Message) -> str:
    content = message.get("content")
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)


def _compiled(message: TemplateMessage, syntax: Syntax) -> jinja2.Template | None:
    if message.slot is not None or syntax is Syntax.LITERAL:
        return None
    if syntax is Syntax.FORMAT:
        for segment in message.segments:
            if segment.kind is SegmentKind.SLOT and not _is_plain(segment.source):
                raise TemplateInvalid(f"{segment.source[:80]} is more than the name of a variable")
        return None
    source = message.source
    try:
        refused = refused_in(PROMPTS, source)
        if refused is not None:
            raise TemplateInvalid(refused)
        tree = PROMPTS.parse(source)
        PROMPTS.prepare(tree)
        return jinja2.Template.from_code(PROMPTS, PROMPTS.compile(tree), PROMPTS.make_globals(None))
    except jinja2.TemplateError as error:
        raise TemplateInvalid(error.message or type(error).__name__) from None
    except (RecursionError, SyntaxError, MemoryError):
        raise TemplateInvalid("it is nested too deeply") from None


def _is_plain(source: str) -> bool:
    name, layout = field_of(source)
    return name.isidentifier() and not layout and source[1:-1] == name


def _as_written(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _of_jinja(template: jinja2.Template, given: Mapping[str, object], budget: list[int], max_chars: int) -> str:
    parts: list[str] = []
    chars = 0
    try:
        for piece in template.generate({**given, BUDGET: budget}):
            parts.append(piece)
            chars += len(piece)
            if chars > max_chars:
                raise RenderingFailed("it writes too much")
    except jinja2.UndefinedError:
        raise RenderingFailed("a variable has not the shape that the template takes it for") from None
    except jinja2.TemplateError as error:
        raise RenderingFailed(type(error).__name__ if error.message is None else error.message[:200]) from None
    except _RENDER_ERRORS as error:
        raise RenderingFailed(type(error).__name__) from None
    return "".join(parts)


def _given_messages(name: str, value: object) -> list[Message]:
    if not isinstance(value, list) or not all(
        isinstance(one, dict) and isinstance(one.get("role"), str) for one in value
    ):
        raise RenderingFailed(f"the variable {name} has to be a list of messages")
    return value
