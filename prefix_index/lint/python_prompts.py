"""Prompts in a Python module: where text, messages and tools are given to a model, and what is wrong with them there.

    messages=[{"role": "system", "content": f"..."}]     a conversation
    SystemMessage(...), ("system", "..."), PromptTemplate a message, a template
    system_prompt = f"..."                               by its name, or that of the function that returns it
    tools=list(set(...))                                 tools

What is only called a prompt is judged by what surely changes; what is given to a model also by whom and what it is
about.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from prefix_index.layout import Cause
from prefix_index.lint.parts import Where, judged_parts, tokens_of
from prefix_index.lint.python_calls import MESSAGE_CALLS, TEMPLATE_CALLS
from prefix_index.lint.python_source import Source
from prefix_index.lint.python_values import Items, Message, Opaque, Template, Text, Value, disorder_of
from prefix_index.lint.rules import DOCUMENTS, EXAMPLES, HISTORY_AFTER, HISTORY_CUT, TOOL_ORDER
from prefix_index.lint.text_templates import parts_of_text
from prefix_index.lint.types import Asked, Disorder, Every, Finding, Level, Part

PROMPT_ARGUMENTS: Final = frozenset(
    {
        "system",
        "system_prompt",
        "system_message",
        "system_instruction",
        "instructions",
        "preamble",
        "system_instructions",
    }
)
MESSAGES_ARGUMENTS: Final = frozenset({"messages", "input", "chat_history", "conversation", "contents"})
TOOLS_ARGUMENTS: Final = frozenset({"tools", "functions", "tool_schemas"})
CONVERSATION_CALLS: Final = frozenset({"from_messages", "ChatPromptTemplate", "format_messages"})
_PROMPT_NAME: Final = re.compile(
    r"(?:^|_)(?:prompts?|system|system_message|sys_msg|system_msg|system_text|instructions?|preamble|persona)(?:_|$)",
    re.IGNORECASE,
)
_NOT_A_PROMPT: Final = re.compile(
    r"system_(?:info|name|path|exit)|prompt_(?:tokens?|toolkit|len|length|ids?|session|style|color|font|char|hash|file|path|cache|dir)|ps\d",
    re.IGNORECASE,
)
_HISTORY: Final = re.compile(r"messages|history|conversation|turns|transcript|memory", re.IGNORECASE)
_HARD: Final = frozenset(
    {Cause.TIME, Cause.DATE, Cause.EPOCH, Cause.UUID, Cause.HEX_ID, Cause.REQUEST_ID, Cause.RANDOM, Cause.COUNTER}
)
_SOFT_BLOCKS: Final = 4
_SETS: Final = ("set(", "frozenset(", "{")
"""A set itself is never sent: it is no JSON. It is asked what is in it."""


def is_prompt_name(name: str) -> bool:
    """Whether what is called so is a prompt, as far as a name can say."""
    return _PROMPT_NAME.search(name) is not None and _NOT_A_PROMPT.search(name) is None


@dataclass(slots=True)
class Prompts:
    """Takes what the evaluator comes across, and keeps what is wrong with it."""

    source: Source
    where: Where
    asked: Asked
    findings: list[Finding]

    def named(self, name: str, value: Value) -> None:
        """What a name (or a function of that name) stands for."""
        if not is_prompt_name(name):
            return
        if isinstance(value, (Text, Template)):
            self._judge(_of(value), is_given=False)
        elif isinstance(value, Items):
            self.conversation(value)

    def call(self, name: str, last: str, given: Sequence[Value], named: Mapping[str, Value]) -> None:
        """A call with its arguments."""
        for argument, value in named.items():
            if argument in PROMPT_ARGUMENTS and isinstance(value, (Text, Template)):
                self._judge(_of(value), is_given=True)
            elif argument in MESSAGES_ARGUMENTS:
                self.conversation(value)
            elif argument in TOOLS_ARGUMENTS:
                self._tools(value)
        if last in TEMPLATE_CALLS | CONVERSATION_CALLS or last in MESSAGE_CALLS:
            for value in (*given, *named.values()):
                if isinstance(value, (Text, Template)) and last != "partial":
                    self._judge(_of(value), is_given=True)
                elif isinstance(value, Items):
                    self.conversation(value)

    def conversation(self, value: Value) -> None:
        """A list of messages, or what stands for one."""
        if isinstance(value, Opaque):
            self._cut(value)
            return
        if not isinstance(value, Items) or not any(map(_is_message, value.items)):
            return
        parts: list[Part] = []
        for one in value.items:
            message = as_message(one)
            if message is not None and isinstance(message.content, (Text, Template)):
                parts += _of(message.content)
            elif isinstance(one, Opaque):
                self._history(parts, one)
                break
            elif message is not None and message.role in {"user", "human"}:
                break
        self._judge(parts, is_given=True)

    def message(self, value: Message) -> None:
        """A message that stands alone, so far."""
        if isinstance(value.content, (Text, Template)):
            self._judge(_of(value.content), is_given=True)

    def _judge(self, parts: Sequence[Part], *, is_given: bool) -> None:
        expanded = [self._placed(one) for part in parts for one in _expanded(part)]
        for found in judged_parts(expanded, self.where, self.asked):
            is_hard = found.cause in _HARD
            is_long = (found.lost_tokens or 0) >= _SOFT_BLOCKS * self.asked.block_tokens
            if is_hard or is_given or is_long or found.rule in (EXAMPLES, DOCUMENTS):
                self.findings.append(found)

    def _placed(self, part: Part) -> Part:
        """A slot in a text with escapes stands a little behind where it is thought to."""
        text, name = self.source.text, part.text
        if not part.is_slot or text.startswith(("{", "%", "$"), part.at) or part.origin:
            return part
        found = text.find("{" + name, part.at, part.at + 4_000)
        return part if found < 0 else replace(part, at=found)

    def _history(self, before: Sequence[Part], history: Opaque) -> None:
        """What is put in where a conversation follows: messages that are cut, or that are computed again each turn."""
        self._cut(history)
        if not _HISTORY.search(history.name):
            return
        changing = [p for p in before if p.cause in _HARD and p.cause is not Cause.DATE and not p.at_import]
        for part in changing[:1]:
            tokens = sum(tokens_of(one.text, self.asked) for one in before if not one.is_slot)
            self.findings.append(
                Finding(
                    HISTORY_AFTER,
                    self.where(part.at),
                    subject=part.text,
                    cause=part.cause,
                    every=Every.CALL,
                    level=Level.WARNING if tokens else Level.NOTE,
                    note=f"before {history.name}: how long it is, a source cannot tell",
                )
            )

    def _cut(self, value: Opaque) -> None:
        if value.disorder is Disorder.CUT and _HISTORY.search(value.name):
            self.findings.append(
                Finding(HISTORY_CUT, self.where(value.at), value.name, Cause.CONTENT, every=Every.CALL)
            )

    def _tools(self, value: Value) -> None:
        disorder = disorder_of(value)
        if isinstance(value, Opaque) and value.name.startswith(_SETS):
            return
        if disorder in (Disorder.SET, Disorder.SHUFFLED) and isinstance(value, (Opaque, Items)):
            subject = value.name if isinstance(value, Opaque) else "tools"
            note = "a set: another order in every process" if disorder is Disorder.SET else ""
            self.findings.append(
                Finding(TOOL_ORDER, self.where(value.at), subject, None, level=TOOL_ORDER.level, note=note)
            )


def as_message(value: Value) -> Message | None:
    """A value as a message, where it is one: `("system", "...")` too."""
    if isinstance(value, Message):
        return value
    if isinstance(value, Items) and len(value.items) == 2:
        role = value.items[0]
        if isinstance(role, Text) and len(role.parts) == 1 and role.parts[0].text in _ROLES:
            return Message(role.parts[0].text, value.items[1])
    return None


_ROLES: Final = frozenset({"system", "developer", "user", "human", "assistant", "ai", "tool"})


def _is_message(value: Value) -> bool:
    return as_message(value) is not None


def _of(value: Value) -> tuple[Part, ...]:
    if isinstance(value, Template):
        return value.text.parts
    return value.parts if isinstance(value, Text) else ()


def _expanded(part: Part) -> Iterable[Part]:
    """A fixed text that is a template itself, as its parts: somebody else formats it."""
    if part.is_slot or "{" not in part.text:
        return (part,)
    return (replace(one, at=part.at + one.at) for one in parts_of_text(part.text))
