"""Is rendering a request work for a thread?

    messages   200 of them                          3 to 8 µs each
    parts      all lists and objects in messages    3 µs a part, 7 µs a value in a picture's options, 9 µs a tool call
    arguments  text in tool calls                   up to 17 ns a character, as JSON full of numbers
    pictures   text in them                         2 to 4 ns a character
    tools      all their values                     0.2 µs each as JSON, 3 µs in templates that walk them

A client decides which of these his request is made of: 300,000 empty parts are one message, and a list of a million
numbers may stand beside a picture's address. So values are counted wherever they may be, but only up to a bound, and a
request beyond it is one for a thread: the answer costs under 0.1 ms, whatever it is about.
"""

from collections.abc import Iterable, Sequence

from prefix_index.prompt.media import is_text
from prefix_index.prompt.types import PromptView

LOOP_SAFE_MESSAGES = 200
LOOP_SAFE_VALUES = 1_000
"""Values in the content and the tool calls of all messages."""
LOOP_SAFE_TOOL_VALUES = 2_000
LOOP_SAFE_CALL_CHARS = 100_000
LOOP_SAFE_MEDIA_CHARS = 500_000


def renders_long(view: PromptView) -> bool:
    """Whether rendering may take longer than 2 ms. Looks at a bounded number of values."""
    messages: Sequence[object] = view.messages or ()
    if len(messages) > LOOP_SAFE_MESSAGES:
        return True
    given = [value for value in (view.tools, view.documents, view.template_kwargs) if value]
    if given and _exceeds(given, LOOP_SAFE_TOOL_VALUES, LOOP_SAFE_MEDIA_CHARS):
        return True
    media: list[object] = []
    calls: list[object] = []
    values = LOOP_SAFE_VALUES
    for message in messages:
        for key, value in message.items() if isinstance(message, dict) else ():
            if isinstance(value, str):
                continue
            if key != "content" or not isinstance(value, list):
                calls.append(value)
                continue
            values -= len(value)
            if values < 0:
                return True
            # A text's length costs nothing, what else stands in its part does.
            media += [part for part in value if isinstance(part, dict) and (len(part) > 2 or not is_text(part))]
    return _exceeds(media, values, LOOP_SAFE_MEDIA_CHARS) or _exceeds(calls, values, LOOP_SAFE_CALL_CHARS)


def _exceeds(found: Iterable[object], values: int, chars: int) -> bool:
    """Whether there are more values, or characters in texts, in these lists and objects."""
    waiting = list(found)
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            chars -= len(value)
        elif isinstance(value, dict | list):
            values -= len(value)
            if values >= 0:
                waiting += value.values() if isinstance(value, dict) else value
        if values < 0 or chars < 0:
            return True
    return False
