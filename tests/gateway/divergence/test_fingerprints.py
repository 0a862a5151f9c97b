"""A prompt as numbers: equal parts have equal numbers, whatever is in them."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.divergence.fingerprints import (
    MOST_MESSAGES,
    fingerprint_of,
    part_of,
    schemas_of,
    segment_name,
    text_of,
)
from prefix_index.prompt import PromptView

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
MESSAGES = st.lists(
    st.fixed_dictionaries({}, optional={"role": JSON, "content": JSON, "tool_calls": JSON, "name": JSON}), max_size=5
)
TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object"}}}


@given(MESSAGES, st.lists(JSON, max_size=3) | st.none())
def test_whatever_json_a_client_sends_has_a_fingerprint_always_the_same(
    messages: list[dict[str, object]], tools: list[object] | None
) -> None:
    view = PromptView(messages=messages, tools=tools)
    found = fingerprint_of(view)
    assert found == fingerprint_of(view)
    assert len(found.hashes) == len(found.chars)
    schemas_of(tools or [])
    for place in range(len(messages) + 1):
        assert segment_name(view, place).startswith(f"message {place + 1}")
        text_of(view, segment_name(view, place))


@given(st.lists(st.text(max_size=300), min_size=1, max_size=8), st.integers(0, 7), st.integers(1, 32))
def test_what_is_taken_over_of_an_earlier_prompt_is_what_would_be_found_anew(
    said: list[str], turns: int, block_size: int
) -> None:
    """The last messages of the earlier prompt may be others: they are looked at again."""
    messages: list[dict[str, object]] = [{"role": "user", "content": text} for text in said]
    turns = min(turns, len(said))
    tail: list[dict[str, object]] = [{"role": "user", "content": "x"}] * (turns < len(said))
    before = fingerprint_of(PromptView(messages=[*messages[:turns], *tail]))
    now = PromptView(messages=messages)
    assert fingerprint_of(now, before, block_size) == fingerprint_of(now)


def test_parts_tell_roles_contents_calls_and_pictures_apart() -> None:
    call: dict[str, dict[str, object]] = {"function": {"name": "look_up", "arguments": "{}"}}
    picture: dict[str, object] = {"type": "image_url", "image_url": {"url": "data:,one"}}
    changed: list[object] = [{"type": "text", "text": "Hi"}, {**picture, "image_url": {"url": "data:,two"}}]
    messages: list[dict[str, object]] = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hi"},
        {"role": "user", "content": "Ho"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "assistant", "content": None, "tool_calls": [{"function": {**call["function"], "arguments": "{1}"}}]},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}, picture]},
        {"role": "user", "content": changed},
    ]
    assert len({part_of(message)[0] for message in messages}) == len(messages)


def test_the_same_tools_in_another_order_are_the_same_set() -> None:
    other = {"type": "function", "function": {"name": "add", "parameters": {}}}
    one = fingerprint_of(PromptView(messages=[], tools=[TOOL, other]))
    two = fingerprint_of(PromptView(messages=[], tools=[other, TOOL]))
    assert one.toolset == two.toolset
    assert one.tools != two.tools
    none = fingerprint_of(PromptView(messages=[]))
    assert (none.tools, none.toolset) == (0, 0)


def test_a_prompt_without_end_has_a_fingerprint_with_one() -> None:
    messages: list[dict[str, object]] = [{"role": "user", "content": "ab"}] * (3 * MOST_MESSAGES)
    found = fingerprint_of(PromptView(messages=messages))
    assert len(found.hashes) == MOST_MESSAGES
    assert found.all_chars == 2 * len(messages)


def test_parts_are_named_by_their_place_behind_the_system_prompt() -> None:
    chat = PromptView(
        messages=[{"role": "developer", "content": "a"}, {"role": "system", "content": "b"}, {"role": "user"}]
    )
    assert segment_name(chat, 0) == "message 1 user"
    assert text_of(chat, "system") == "a\nb"
    plain = PromptView(prompt="text")
    assert (segment_name(plain, 0), text_of(plain, "prompt")) == ("prompt", "text")
    assert segment_name(PromptView(messages=[{"role": "of a client's own"}]), 0) == "message 1"
