"""Messages to prompt text, with the model's own Jinja template, the way Hugging Face's libraries render it.

The template is data from a model directory, so it runs in Jinja's immutable sandbox. Besides plain Jinja a template may
use `raise_exception(text)`, `strftime_now(format)`, the `tojson` filter (which here keeps non-ASCII characters and
escapes no HTML), and `break` and `continue` in loops.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import NoReturn

from jinja2 import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from backends.reference.errors import ModelUnavailable, RequestRefused

Message = dict[str, object]

TEXT_KEYS = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
    "thinking": "thinking",
}
"""Part types that are text, and where they keep it."""

RESERVED = frozenset({"messages", "conversation", "chat_template", "tokenize"})
"""Names of template arguments that vLLM refuses."""

MARK = "CONTINUE_FINAL_MESSAGE_TAG "
"""Put behind the message to be continued. It is Hugging Face's own, so that templates do the same with it."""


class ChatTemplate:
    """One compiled template with the special tokens it may mention; thread-safe."""

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = _strftime_now
        self._template = environment.from_string(source)
        self._special_tokens = dict(special_tokens)

    def render(
        self, messages: Sequence[Message], variables: Mapping[str, object], *, continue_final_message: bool = False
    ) -> str:
        """The prompt. `variables` are tools, documents, `add_generation_prompt` and what the client adds to them.

        With `continue_final_message` the prompt ends where the last message's text does. Raises `RequestRefused` (400).
        """
        if RESERVED & variables.keys():
            raise RequestRefused("a template argument has a reserved name", param="chat_template_kwargs")
        seen = [_plain(message) for message in messages]
        if continue_final_message:
            seen[-1] = {**seen[-1], "content": f"{seen[-1]['content']}{MARK}"}
        try:
            text = self._template.render({**self._special_tokens, **variables, "messages": seen})
        except (TemplateError, TypeError, ValueError, AttributeError) as error:
            # Templates fail in many ways on messages they do not expect; all of them are about this request.
            why = str(error) if isinstance(error, _TemplateRefusal) else type(error).__name__
            raise RequestRefused(f"the chat template refused the messages: {why}", param="messages") from error
        return _cut_at_mark(text) if continue_final_message else text


class _TemplateRefusal(TemplateError):
    """The template itself called `raise_exception`."""


def load_chat_template(directory: Path, override: Path | None = None) -> ChatTemplate:
    """The template of a model directory, or the one in the file `override`. Raises `ModelUnavailable`."""
    config = json.loads((directory / "tokenizer_config.json").read_text(encoding="utf-8"))
    names = ("bos_token", "eos_token", "unk_token", "pad_token")
    special = {name: _token_text(config[name]) for name in names if config.get(name)}
    separate = override or directory / "chat_template.jinja"
    if separate.is_file():
        return ChatTemplate(separate.read_text(encoding="utf-8"), special)
    source = config.get("chat_template")
    if override or not isinstance(source, str):
        raise ModelUnavailable(f"chat template {override or directory}", "give one with --chat-template FILE")
    return ChatTemplate(source, special)


def _cut_at_mark(text: str) -> str:
    """The text before the mark; a template that trims took the mark's space away, so it would have trimmed more."""
    before, found, after = text.rpartition(MARK.strip())
    if not found:
        raise RequestRefused("the chat template leaves out the message to be continued", param="messages")
    return before if after.startswith(" ") else before.rstrip()


def _plain(message: Message) -> Message:
    """One message as templates expect it: content is a string, arguments of tool calls are objects."""
    plain = {**message, "content": _text_of(message.get("content"))}
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        plain["tool_calls"] = [_with_object_arguments(call) for call in calls]
    return plain


def _text_of(content: object) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise RequestRefused("content must be a string or a list of parts", param="messages")
    return "\n".join(filter(None, map(_part_text, content)))


def _part_text(part: object) -> str:
    """The text of one part; empty for a text part without."""
    if isinstance(part, str):
        return part
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(part, dict) or kind not in TEXT_KEYS:
        raise RequestRefused("this engine takes text parts only", param="messages")
    text = part.get(TEXT_KEYS[kind])
    if text is not None and not isinstance(text, str):
        raise RequestRefused("the text of a part must be a string", param="messages")
    return text or ""


def _with_object_arguments(call: object) -> object:
    if not isinstance(call, dict) or not isinstance(function := call.get("function"), dict):
        raise RequestRefused("each tool call needs a function", param="messages")
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            arguments = {}
    if not isinstance(arguments, dict):
        arguments = {}
    return {**call, "function": {**function, "arguments": arguments}}


def _token_text(token: object) -> str:
    """Special tokens are strings, or objects with the string in `content`."""
    return str(token["content"]) if isinstance(token, dict) else str(token)


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> NoReturn:
    raise _TemplateRefusal(message)


def _strftime_now(pattern: str) -> str:
    return datetime.now().strftime(pattern)  # noqa: DTZ005 - templates mean the local date, as Hugging Face's do
