"""A model's chat template: messages and tools become the text that the engine tokenises.

    messages + variables --compiled template--> text --(continue_final_message)--> text, left open

Compiled once. Rendering is a pure function of its arguments: no files, no clock (`now` is an argument: a template that
writes today's date changes every prompt at midnight), no state between calls, and it changes none of its arguments.
Whatever goes wrong, endless loops and recursion included, is `TemplateFailed` (bounds: template_language.py).
Cost: some 10 µs a message with plain templates.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import jinja2

from prefix_index.errors import TemplateFailed
from prefix_index.prompt.content_format import content_format, content_format_of_names
from prefix_index.prompt.continuation import cut_after_mark, with_mark
from prefix_index.prompt.template_language import BUDGET, MAX_LOOP_STEPS, MAX_RENDERED_CHARS, ChatEnvironment
from prefix_index.prompt.types import Clock, Json

MAX_REASON_CHARS = 200

_RENDER_ERRORS = (
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What Python code can raise when a template treats data as what they are not."""


class ChatTemplate:
    """One compiled chat template with the special tokens of its model (`bos_token`, `eos_token`, ...).

    `content_format` is what it wants in `message.content` (`content_format_of_names` by SGLang's rule);
    `knows_developer` whether it handles that role. `language` is the dialect of Jinja that its engine speaks.
    Immutable, safe to share between threads. Raises `TemplateFailed` when `source` is not a template.
    """

    def __init__(
        self,
        source: str,
        special_tokens: Mapping[str, object] | None = None,
        language: type[ChatEnvironment] = ChatEnvironment,
    ) -> None:
        environment = language()
        self.source = source
        self.special_tokens = dict(special_tokens or {})
        try:
            tree = environment.parse(source)
            self.content_format = content_format(tree)
            self.content_format_of_names = content_format_of_names(tree, source)
            environment.prepare(tree)
            code = environment.compile(tree)
        except jinja2.TemplateError as error:
            raise TemplateFailed(_reason(error)) from None
        except (RecursionError, SyntaxError, MemoryError):
            # Python's own compiler has limits too, such as 20 nested loops.
            raise TemplateFailed("the template is nested too deeply") from None
        self.knows_developer = '"developer"' in source or "'developer'" in source
        self._template = jinja2.Template.from_code(environment, code, environment.make_globals(None))

    def in_language(self, language: type[ChatEnvironment]) -> "ChatTemplate":
        """The same template compiled for an engine that speaks its own dialect. Some milliseconds."""
        return ChatTemplate(self.source, self.special_tokens, language)

    def render(
        self,
        messages: Sequence[Json],
        variables: Json,
        *,
        continue_final_message: bool = False,
        now: Clock | None = None,
    ) -> str:
        """The text of `messages`, which are as an engine gives them to a template.

        `variables` holds tools, documents, `add_generation_prompt` and template arguments; they win over special
        tokens of the same name. With `continue_final_message` the text ends where the last message's does. Linear in
        the text; raises `TemplateFailed`, whose reason is the template's own message or the name of an error, and
        holds nothing of the messages unless the template quotes them.
        """
        if continue_final_message and "content" not in self.source:
            raise TemplateFailed("the template does not look into the message that should be continued")
        seen = with_mark(messages) if continue_final_message else messages
        context = {**self.special_tokens, "strftime_now": _strftime(now), **variables}
        context |= {"messages": seen, BUDGET: [MAX_LOOP_STEPS]}
        try:
            text = _joined(self._template.generate(context))
        except jinja2.TemplateError as error:
            raise TemplateFailed(_reason(error)) from None
        except _RENDER_ERRORS as error:
            raise TemplateFailed(f"{type(error).__name__} while rendering") from None
        return cut_after_mark(text, messages) if continue_final_message else text


def _strftime(now: Clock | None) -> Callable[[str], str]:
    def strftime_now(layout: str) -> str:
        if now is None:
            raise jinja2.TemplateRuntimeError("the template asks for the date and no clock was given")
        return now().strftime(layout)

    return strftime_now


def _joined(pieces: Iterable[str]) -> str:
    parts: list[str] = []
    chars = 0
    for piece in pieces:
        parts.append(piece)
        chars += len(piece)
        if chars > MAX_RENDERED_CHARS:
            raise jinja2.TemplateRuntimeError("the template writes too much")
    return "".join(parts)


def _reason(error: jinja2.TemplateError) -> str:
    return (error.message or type(error).__name__)[:MAX_REASON_CHARS]
