"""Any stream of chat chunks, in any grouping: nothing is lost, added or claimed."""

import json
from collections import defaultdict
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.sse import split_events
from tests.gateway.edge.responses_answers import DONE, answer_to, chunk, events_of, fragment, kinds, usage_event

texts = st.text(max_size=8)
deltas = st.one_of(
    st.builds(lambda text: {"content": text}, texts),
    st.builds(lambda text: {"reasoning_content": text}, texts),
    st.builds(lambda text: {"refusal": text}, texts),
    st.builds(lambda at, text: fragment(at, arguments=text), st.integers(0, 2), texts),
    st.builds(lambda at: fragment(at, id=f"c{at}"), st.integers(0, 2)),
    st.builds(lambda at: fragment(at, name=f"f{at}"), st.integers(0, 2)),
    st.just({"role": "assistant", "content": None}),
)
streams = st.lists(deltas, max_size=20).map(lambda said: [*map(chunk, said), chunk({}, "stop"), usage_event(), DONE])


@given(streams, st.data())
def test_how_events_are_grouped_changes_nothing(stream: list[bytes], data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    bounds = [0, *cuts, len(stream)]
    groups = [b"".join(stream[start:end]) for start, end in pairwise(bounds)]
    answer, at_once = answer_to(), answer_to()
    said = b"".join(answer.feed(group) for group in groups[:-1]) + answer.end(groups[-1])
    assert said == at_once.end(b"".join(stream))


@given(streams)
def test_nothing_is_lost_added_or_mixed_up(stream: list[bytes]) -> None:
    asked, arguments = _asked(stream)
    events = events_of(answer_to().end(b"".join(stream)))
    assert [one["sequence_number"] for one in events] == list(range(len(events)))
    told: dict[str, str] = defaultdict(str)
    for one in events:
        if one["type"].endswith("delta") and "arguments" not in one["type"]:
            told[one["type"]] += one["delta"]
    assert dict(told) == {kind: text for kind, text in asked.items() if text}
    output = events[-1]["response"]["output"]
    calls = [item["arguments"] for item in output if item["type"] == "function_call"]
    assert sorted(calls) == sorted(arguments.values())
    done = {one["output_index"]: one["item"] for one in events if one["type"] == "response.output_item.done"}
    assert [done[at] for at in range(len(done))] == output


@given(streams, st.integers(0, 22))
def test_a_stream_cut_anywhere_before_its_finish_has_no_end(stream: list[bytes], at: int) -> None:
    events = events_of(answer_to().end(b"".join(stream[: min(at, len(stream) - 3)])))
    assert not {"completed", "incomplete", "failed"} & set(kinds(events))


def _asked(stream: list[bytes]) -> tuple[dict[str, str], dict[int, str]]:
    """What a stream says, told apart in the plainest way: the three texts, and the arguments of each call."""
    said: dict[str, str] = defaultdict(str)
    arguments: dict[int, str] = {}
    names = {
        "content": "response.output_text.delta",
        "reasoning_content": "response.reasoning_text.delta",
        "refusal": "response.refusal.delta",
    }
    for one in split_events(b"".join(stream)):
        if b'"delta"' not in one:
            continue
        delta: dict[str, Any] = json.loads(one[6:])["choices"][0]["delta"]
        for key, name in names.items():
            said[name] += delta.get(key) or ""
        for call in delta.get("tool_calls", []):
            arguments[call["index"]] = arguments.get(call["index"], "") + call["function"].get("arguments", "")
    return said, arguments
