"""What a client may make a request of so that rendering it holds the loop is rendered in a thread."""

from typing import Any

import pytest

from prefix_index.prompt import PromptView
from prefix_index.prompt.weight import (
    LOOP_SAFE_CALL_CHARS,
    LOOP_SAFE_MEDIA_CHARS,
    LOOP_SAFE_MESSAGES,
    LOOP_SAFE_TOOL_VALUES,
    LOOP_SAFE_VALUES,
    renders_long,
)

TEXT = {"type": "text", "text": "a"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
MANY = LOOP_SAFE_VALUES + 1


def said(*parts: object, **fields: object) -> PromptView:
    return PromptView(messages=[{"role": "user", "content": list(parts), **fields}])


def picture(**fields: object) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}, **fields}


def deep() -> list[object]:
    inside: list[object] = []
    for _ in range(MANY):
        inside = [inside]
    return inside


def called(arguments: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "f", "arguments": arguments}}


@pytest.mark.parametrize(
    "view",
    [
        PromptView(messages=[{"role": "user", "content": "a"}] * (LOOP_SAFE_MESSAGES + 1)),
        said(*[TEXT] * MANY),
        said(*["a"] * MANY),
        said(picture(options=[1] * MANY)),
        said(picture(options={str(number): 1 for number in range(MANY)})),
        said(picture(options=deep())),
        said(picture(options=[[[[["x" * (LOOP_SAFE_MEDIA_CHARS + 1)]]]]])),
        said({**TEXT, **{str(number): 1 for number in range(MANY)}}),
        said(TEXT, tool_calls=[called("{}")] * MANY),
        said(TEXT, tool_calls=[called("1" * (LOOP_SAFE_CALL_CHARS + 1))]),
        said(TEXT, tools=[1] * MANY),
        PromptView(messages=[], tools=[TOOL] * LOOP_SAFE_TOOL_VALUES),
        PromptView(messages=[], documents=[{"a": [1] * (LOOP_SAFE_TOOL_VALUES + 1)}]),
        PromptView(messages=[], template_kwargs={"a": [1] * (LOOP_SAFE_TOOL_VALUES + 1)}),
    ],
)
def test_what_may_be_long_is_for_a_thread(view: PromptView) -> None:
    assert renders_long(view)


@pytest.mark.parametrize(
    "view",
    [
        PromptView(prompt="x" * 1_000_000),
        PromptView(messages=[{"role": "user", "content": "x" * 1_000_000}] * LOOP_SAFE_MESSAGES, tools=[TOOL] * 40),
        said({"type": "text", "text": "x" * 1_000_000}, picture()),
        said(TEXT, tool_calls=[called("{}")] * 40),
        said({**TEXT, "index": 1}, number=5),
        PromptView(messages=["odd", 5, None]),  # type: ignore[list-item]  # as clients may
    ],
)
def test_what_is_short_or_only_text_stays_on_the_loop(view: PromptView) -> None:
    assert not renders_long(view)
