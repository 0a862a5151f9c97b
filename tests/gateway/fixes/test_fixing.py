"""Fixes change what they name in a request's bytes, and nothing else."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.fixes import ALL_FIXES, Fix, How, VolatileTo, fixed
from gateway.fixes.fixing import tool_names
from gateway.types import Route

NOW = "2026-11-30T12:05:11Z"
SYSTEM = "You are a careful researcher.\n\n- Cite.\n- Be brief."
CONSENTED = (Fix.DAY, Fix.TOOLS, Fix.LINES)


def how(route: Route = Route.CHAT, *fixes: Fix, **options: Any) -> How:
    return How(route, fixes or CONSENTED, **options)


def chat(system: object = f"Current time: {NOW}\n{SYSTEM}", **fields: object) -> dict[str, Any]:
    turns = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "So."}]
    return {
        "model": "m",
        "messages": [{"role": "system", "content": system}, *turns, {"role": "user", "content": "And"}],
    } | fields


def after(body: object, options: How) -> Any:
    return json.loads(fixed(json.dumps(body).encode(), options).body)


def function(name: str, **schema: object) -> dict[str, object]:
    return {"type": "function", "function": {"name": name, "description": f"{name}!", "parameters": schema}}


SCHEMA = {
    "type": "object",
    "required": ["z", "a"],
    "properties": {"z": {"enum": ["y", "x"]}, "a": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
}


def test_a_line_goes_to_the_end_of_the_system_text_of_each_dialect() -> None:
    before, end = f"Current time: {NOW}\n{SYSTEM}", f"{SYSTEM}\nCurrent time: {NOW}"
    lines = (Fix.LINES,)
    assert after(chat(before), how(Route.CHAT, *lines)) == chat(end)
    assert after(chat([{"type": "text", "text": before}]), how(Route.CHAT, *lines)) == chat(
        [{"type": "text", "text": end}]
    )
    body = {"system": before, "messages": [{"role": "user", "content": "Hi"}]}
    assert after(body, how(Route.MESSAGES, *lines)) == body | {"system": end}
    body = {"instructions": before, "input": "Hi"}
    assert after(body, how(Route.RESPONSES, *lines)) == body | {"instructions": end}


def test_a_line_goes_into_the_last_user_message_where_that_is_wanted() -> None:
    options = {"volatile_to": VolatileTo.LAST_USER}
    assert after(chat(), how(Route.CHAT, Fix.LINES, **options))["messages"] == [
        {"role": "system", "content": SYSTEM},
        *chat()["messages"][1:3],
        {"role": "user", "content": f"And\n\nCurrent time: {NOW}"},
    ]
    body = {
        "system": f"{SYSTEM}\nTime: {NOW}",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
    }
    found = after(body, how(Route.MESSAGES, Fix.LINES, **options))
    assert found["system"] == SYSTEM
    assert found["messages"][0]["content"] == [{"type": "text", "text": f"Hi\n\nTime: {NOW}"}]
    given = {"instructions": f"Time: {NOW}\n{SYSTEM}", "input": "Hi"}
    assert after(given, how(Route.RESPONSES, Fix.LINES, **options)) == {
        "instructions": SYSTEM,
        "input": f"Hi\n\nTime: {NOW}",
    }
    assert after(
        {"instructions": f"Time: {NOW}\n{SYSTEM}", "input": []}, how(Route.RESPONSES, Fix.LINES, **options)
    ) == {
        "instructions": f"Time: {NOW}\n{SYSTEM}",
        "input": [],
    }


def test_blocks_with_a_cache_mark_are_not_split_and_nothing_crosses_a_mark() -> None:
    line, mark = f"Time: {NOW}", {"cache_control": {"type": "ephemeral"}}

    def body(*system: dict[str, object], user: object = "Hi") -> dict[str, object]:
        return {"system": list(system), "messages": [{"role": "user", "content": user}]}

    def block(text: str, **more: object) -> dict[str, object]:
        return {"type": "text", "text": text} | more

    lines = how(Route.MESSAGES, Fix.LINES)
    to_user = how(Route.MESSAGES, Fix.LINES, volatile_to=VolatileTo.LAST_USER)
    for left in (
        body(block(f"{line}\n{SYSTEM}", **mark)),
        body(block(f"{line}\n{SYSTEM}"), block("More.", **mark)),
        body(block(f"{line}\n{SYSTEM}"), block("More.", **mark), block("End.")),
    ):
        assert after(left, lines) == left
        assert after(left, to_user) == left
    marked = body(block(f"{line}\n{SYSTEM}"), user=[block("Hi", **mark)])
    assert after(marked, to_user) == marked
    behind = body(block(SYSTEM, **mark), block(f"{line}\nMore."))
    assert after(behind, lines) == body(block(SYSTEM, **mark), block(f"More.\n{line}"))


def test_tools_get_one_order_and_each_stays_as_it_was_written() -> None:
    one, other = (b'{"type":"function","function":{"name":%s}}' % said for said in (rb'"b","x":1.0', rb'"\u0061"'))
    raw = b'{"tools": [ %s ,\n%s]}'
    assert fixed(raw % (one, other), how(Route.CHAT, Fix.TOOLS)).body == raw % (other, one)
    body = {
        "tools": [{"name": "b", "input_schema": {}}, {"name": "a", "input_schema": {}}],
        "tool_choice": {"type": "tool", "name": "b"},
    }
    assert after(body, how(Route.MESSAGES)) == body | {"tools": body["tools"][::-1]}  # type: ignore[index]
    known = how(Route.CHAT, Fix.TOOLS, tools_in=("c", "a", "b"))
    tools = [function(name) for name in "abc"]
    assert after({"tools": tools}, known) == {"tools": [function(name) for name in "cab"]}
    assert after({"tools": tools[:2]}, known) == {"tools": tools[:2]}, "another set"


@pytest.mark.parametrize(
    "tools",
    [
        [function("b"), function("b"), function("a")],
        [function("b"), {"type": "web_search"}],
        [function("b"), "a"],
        [{**function("b"), "cache_control": {"type": "ephemeral"}}, function("a")],
        [{"type": "custom", "custom": {"name": "b"}}, function("a")],
        {"b": 1, "a": 2},
        [["b"], ["a"]],
    ],
)
def test_tools_that_are_odd_keep_their_order(tools: object) -> None:
    body = json.dumps({"tools": tools, "messages": []}).encode()
    assert fixed(body, how()).body is body


def test_a_timestamp_is_rounded_to_its_day() -> None:
    found = after(chat(f"You help.\nNow: {NOW}. Epoch: 1796040311."), how(Route.CHAT, Fix.DAY))
    assert found == chat("You help.\nNow: 2026-11-30T00:00:00Z. Epoch: 1795996800.")
    kept = chat("You help. Open since 2020-01-01T08:00:00Z. Lunch at 12:30.")
    assert after(kept, how(Route.CHAT, Fix.DAY)) == kept


def test_schemas_lists_turns_roles_examples_and_results_are_never_touched() -> None:
    """The nevers: every list whose order says something, at every place where one stands."""
    late = f"Time: {NOW}\nZ.\nA."
    body = chat(
        messages=[
            {"role": "system", "content": SYSTEM},
            {"role": "system", "content": late},
            {"role": "user", "content": late},
            {
                "role": "assistant",
                "content": late,
                "tool_calls": [{"id": "2", "function": {"name": "b", "arguments": late}}],
            },
            {"role": "tool", "tool_call_id": "2", "content": late},
            {"role": "developer", "content": late},
            {"role": "user", "content": late},
        ],
        response_format={"type": "json_schema", "json_schema": {"name": "r", "schema": SCHEMA}},
        tools=[function("a", **SCHEMA)],
        stop=["z", "a"],
        logit_bias={"9": 1, "1": 9},
    )
    raw = json.dumps(body).encode()
    assert fixed(raw, how()).body is raw
    assert fixed(raw, how(volatile_to=VolatileTo.LAST_USER)).body is raw
    two = json.dumps(body | {"tools": [function("b", **SCHEMA), function("a", **SCHEMA)]}).encode()
    assert json.dumps(function("b", **SCHEMA)).encode() in fixed(two, how()).body
    few_shot = {
        "system": SYSTEM,
        "messages": [{"role": role, "content": late} for role in ("user", "assistant", "user")],
    }
    assert after(few_shot, how(Route.MESSAGES)) == few_shot
    started_by_user = chat(messages=[{"role": "user", "content": late}])
    assert after(started_by_user, how()) == started_by_user


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"nonsense",
        b'{"messages": ',
        b"\xff\xfe",
        b'{"messages": "x", "tools": 1}',
        b'{"messages": [1]}',
        b'{"messages": [{"role": "system", "content": {"a": "Time: 2026-11-30T12:05:11Z\\nX"}}]}',
        b'{"messages": [{"role": "system", "content": "Time: 2026-11-30T12:05:11Z\\nX"}], "messages": []}',
        b'{"messages": [{"role": "system", "role": "user", "content": "Time: 2026-11-30T12:05:11Z\\nX"}]}',
        b'{"messages": [{"role": "system", "content": "x", "content": "Time: 2026-11-30T12:05:11Z\\nX"}]}',
        b'{"messages": [{"role": "system", "content": [{"type": "text"}]}]}',
        b'{"messages": [{"role": "user", "content": "Time: 2026-11-30T12:05:11Z\\nX"}]}',
        b'{"messages":' + b"[" * 100_000,
        b'{"x": NaN, "messages": [{"role": "user", "content": "y"}]}',
    ],
)
def test_a_body_that_is_odd_is_left_alone(body: bytes) -> None:
    for route in (Route.CHAT, Route.MESSAGES, Route.RESPONSES):
        for to in VolatileTo:
            assert fixed(body, how(route, volatile_to=to)).body is body


def test_escapes_surrogates_and_numbers_stay_as_they_are_written() -> None:
    said = rb"Time: 2026-11-30T12:05:11Z \ud83d\ude00\nA \u00e9 \ud800 \/ \t end\r\nB"
    raw = b'{ "seed":1.0e+2,"x":NaN, "messages":[{"content":"%s","role":"system"}]\t}' % said
    assert fixed(raw, how(Route.CHAT, Fix.LINES)).body == (
        b'{ "seed":1.0e+2,"x":NaN, "messages":[{"content":"'
        + rb"A \u00e9 \ud800 \/ \t end\r\nB\nTime: 2026-11-30T12:05:11Z \ud83d\ude00"
        + b'","role":"system"}]\t}'
    )


def test_a_cache_mark_on_a_message_holds_its_text_as_one_on_its_block_does() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    body = chat()
    body["messages"][0] |= mark
    for to in VolatileTo:
        assert after(body, how(Route.CHAT, Fix.LINES, volatile_to=to)) == body
    body = chat()
    body["messages"][1] |= mark
    assert after(body, how(Route.CHAT, Fix.LINES, volatile_to=VolatileTo.LAST_USER)) == body


def test_a_line_does_not_cross_a_cache_mark_inside_of_a_tool_s_result() -> None:
    part = {"type": "text", "text": "42", "cache_control": {"type": "ephemeral"}}
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [part]}]}
    body = {"system": f"Current time: {NOW}\n{SYSTEM}", "messages": [result, {"role": "user", "content": "Hi"}]}
    assert after(body, how(Route.MESSAGES, Fix.LINES, volatile_to=VolatileTo.LAST_USER)) == body


def test_tools_keep_their_order_where_a_function_has_a_cache_mark() -> None:
    tools = [function("b"), function("a")]
    tools[0]["function"]["cache_control"] = {"type": "ephemeral"}  # type: ignore[index]  # a dict of its own
    body = chat(tools=tools)
    assert after(body, how(Route.CHAT, Fix.TOOLS)) == body


def test_a_system_text_as_long_as_a_book_is_data_and_left_alone() -> None:
    body = chat(f"Current time: {NOW}\n" + "Line 7 of 12:05.\n" * 20_000)
    assert after(body, how(Route.CHAT, Fix.LINES, Fix.DAY)) == body


def test_a_name_with_half_a_character_has_no_order_to_be_remembered() -> None:
    body = json.dumps(chat(tools=[function("b\ud83d"), function("a")])).encode()
    assert tool_names(body, how()) is None


def test_more_lines_than_are_allowed_all_stay() -> None:
    body = chat("\n".join([*(f"{what}: {NOW}" for what in ("Time", "Now", "Clock")), SYSTEM]))
    assert after(body, how(Route.CHAT, Fix.LINES, most_lines=2)) == body
    assert after(body, how(Route.CHAT, Fix.LINES, most_lines=3)) != body


def test_compact_takes_the_white_space_that_no_model_sees() -> None:
    raw = b'{ "a" : [ 1 , "x \\" y" ] ,\n "b":{ } }'
    assert fixed(raw, How(Route.CHAT, (Fix.COMPACT,))).body == b'{"a":[1,"x \\" y"],"b":{}}'


SAID = st.lists(
    st.sampled_from(
        ["", "---", "Text é.", f"Time: {NOW}", "Request id: 7f3a9c01b2", "```", "😀", "\ud800", "Turn 1 of 3"]
    )
    | st.text(max_size=8),
    max_size=8,
).map("\n".join)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | SAID,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcd") | st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)
CONTENT = SAID | st.lists(
    st.fixed_dictionaries({"type": st.just("text"), "text": SAID}, optional={"cache_control": JSON}), max_size=3
)
TURNS = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "developer", "user", "assistant", "tool"]), "content": CONTENT}
    ),
    max_size=4,
)
TOOLS = st.lists(
    st.sampled_from("cbaéd").flatmap(
        lambda name: st.builds(lambda schema: function(name, x=schema) | {"name": name}, JSON)
    ),
    max_size=4,
)
BODIES = st.fixed_dictionaries(
    {"messages": TURNS},
    optional={"tools": TOOLS, "system": CONTENT, "instructions": SAID, "input": SAID | TURNS, "x": JSON, "é": JSON},
)
OPTIONS = st.builds(
    How,
    st.sampled_from([Route.CHAT, Route.MESSAGES, Route.RESPONSES]),
    st.sets(st.sampled_from(ALL_FIXES)).map(tuple),
    st.sampled_from(VolatileTo),
    st.integers(1, 5),
    st.none() | st.permutations("abcd").map(tuple),
)


def flat(value: object) -> str:
    """A value with every text cut into its lines, sorted: equal where lines were moved and nothing else."""
    if isinstance(value, dict):
        return json.dumps({key: flat(one) for key, one in value.items()}, sort_keys=True)
    if isinstance(value, list):
        return json.dumps([flat(one) for one in value])
    return json.dumps(value)


def lines_of(value: object) -> list[str]:
    if isinstance(value, dict):
        return [line for one in value.values() for line in lines_of(one)]
    if isinstance(value, list):
        return [line for one in value for line in lines_of(one)]
    return [line for line in value.split("\n") if line.strip()] if isinstance(value, str) else []


@given(BODIES, OPTIONS, st.sampled_from([None, 1]), st.booleans())
def test_fixes_lose_double_or_alter_nothing_and_a_second_time_changes_nothing(
    body: dict[str, Any], options: How, indent: int | None, ascii_only: bool
) -> None:
    raw = json.dumps(body, indent=indent, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    once = fixed(raw, options)
    assert set(once.fixes) <= set(options.fixes)
    assert fixed(once.body, options).body == once.body
    if not once.fixes:
        assert once.body is raw
        return
    new = json.loads(once.body)
    if Fix.DAY not in once.fixes:
        assert sorted(lines_of(new)) == sorted(lines_of(body))
    changeable = {"messages", "system", "instructions", "input", "tools"}
    assert flat({name: one for name, one in new.items() if name not in changeable}) == flat(
        {name: one for name, one in body.items() if name not in changeable}
    )
    assert sorted(map(flat, new.get("tools", []))) == sorted(map(flat, body.get("tools", [])))
    if Fix.LINES not in once.fixes and Fix.DAY not in once.fixes:
        assert flat({**new, "tools": []}) == flat({**body, "tools": []})
    assert [turn["role"] for turn in new["messages"]] == [turn["role"] for turn in body["messages"]]


@given(st.permutations([f"t{number:02}" for number in range(12)]))
def test_every_order_of_a_set_becomes_the_same_bytes(names: list[str]) -> None:
    bodies = [json.dumps({"tools": [function(name) for name in order]}).encode() for order in (names, sorted(names))]
    assert fixed(bodies[0], how()).body == bodies[1]
    assert tool_names(bodies[0], how()) == tuple(names)


@given(BODIES)
def test_without_fixes_a_body_is_the_same_object(body: dict[str, Any]) -> None:
    raw = json.dumps(body).encode()
    assert fixed(raw, How(Route.CHAT, ())).body is raw
