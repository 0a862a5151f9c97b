"""Usage in every shape that engines and providers send."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import astuple

from billing import Buckets, Usage, UsageFlag, UsageMerger, UsageReport
from billing.usage import LARGEST_COUNT, MOST_RAW_BYTES, checked


def read(*reports: dict[str, object]) -> UsageReport:
    merger = UsageMerger()
    for report in reports:
        merger.add(report)
    return merger.result()


SHAPES: dict[str, tuple[dict[str, object], str, Usage]] = {
    "openai chat with details": (
        {
            "prompt_tokens": 10_000,
            "completion_tokens": 200,
            "total_tokens": 10_200,
            "prompt_tokens_details": {"cached_tokens": 9_984, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 150},
        },
        "openai",
        Usage(10_000, 9_984, 200, None, 150),
    ),
    "openai with cache writes": (
        {
            "prompt_tokens": 3_000,
            "completion_tokens": 5,
            "prompt_tokens_details": {"cached_tokens": 1_024, "cache_write_tokens": 1_920},
        },
        "openai",
        Usage(3_000, 1_024, 5, 1_920),
    ),
    "vllm without the details switch": (
        {"prompt_tokens": 77, "completion_tokens": 3, "total_tokens": 80, "prompt_tokens_details": None},
        "openai",
        Usage(77, None, 3),
    ),
    "vllm with details, cold": (
        {
            "prompt_tokens": 77,
            "completion_tokens": 3,
            "total_tokens": 80,
            "prompt_tokens_details": {"cached_tokens": 0, "created_cache_tokens": 64},
        },
        "openai",
        Usage(77, 0, 3, 64),
    ),
    "sglang with null cached and reasoning beside": (
        {
            "prompt_tokens": 77,
            "completion_tokens": 30,
            "total_tokens": 107,
            "reasoning_tokens": 12,
            "prompt_tokens_details": {"cached_tokens": None},
        },
        "openai",
        Usage(77, None, 30, None, 12),
    ),
    "cached beside the total": (
        {"prompt_tokens": 500, "completion_tokens": 1, "cached_tokens": 256},
        "openai",
        Usage(500, 256, 1),
    ),
    "tgi": ({"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10}, "openai", Usage(9, None, 1)),
    "embeddings": ({"prompt_tokens": 8, "total_tokens": 8}, "openai", Usage(8, None, 0)),
    "output only": ({"completion_tokens": 8}, "openai", Usage(None, None, 8)),
    "zero-token answer": ({"prompt_tokens": 8, "completion_tokens": 0}, "openai", Usage(8, None, 0)),
    "responses": (
        {
            "input_tokens": 36,
            "input_tokens_details": {"cached_tokens": 32},
            "output_tokens": 87,
            "output_tokens_details": {"reasoning_tokens": 7},
            "total_tokens": 123,
        },
        "responses",
        Usage(36, 32, 87, None, 7),
    ),
    "anthropic, disjoint": (
        {
            "input_tokens": 6,
            "cache_creation_input_tokens": 159_217,
            "cache_read_input_tokens": 0,
            "cache_creation": {"ephemeral_5m_input_tokens": 159_217, "ephemeral_1h_input_tokens": 0},
            "output_tokens": 2_745,
        },
        "anthropic",
        Usage(159_223, 0, 2_745, 159_217),
    ),
    "anthropic, writes by lifetime only": (
        {
            "input_tokens": 6,
            "cache_read_input_tokens": 10,
            "cache_creation": {"ephemeral_1h_input_tokens": 20},
            "output_tokens": 1,
        },
        "anthropic",
        Usage(36, 10, 1, 20),
    ),
    "anthropic, read unknown": (
        {"input_tokens": 6, "cache_read_input_tokens": None, "output_tokens": 1},
        "anthropic",
        Usage(6, None, 1),
    ),
    "anthropic route of an engine without details": (
        {"input_tokens": 60, "output_tokens": 1},
        "responses",
        Usage(60, None, 1),
    ),
    "deepseek": (
        {
            "prompt_tokens": 1_000,
            "completion_tokens": 10,
            "total_tokens": 1_010,
            "prompt_cache_hit_tokens": 896,
            "prompt_cache_miss_tokens": 104,
        },
        "deepseek",
        Usage(1_000, 896, 10),
    ),
    "deepseek without a total": (
        {"completion_tokens": 10, "prompt_cache_hit_tokens": 896, "prompt_cache_miss_tokens": 104},
        "deepseek",
        Usage(1_000, 896, 10),
    ),
    "deepseek without misses": (
        {"prompt_tokens": 1_000, "completion_tokens": 10, "prompt_cache_hit_tokens": 896},
        "deepseek",
        Usage(1_000, 896, 10),
    ),
    "a translating server: inclusive prompt, foreign keys beside it": (
        {
            "prompt_tokens": 100,
            "completion_tokens": 1,
            "prompt_tokens_details": {"cached_tokens": 90},
            "cache_read_input_tokens": 90,
        },
        "openai",
        Usage(100, 90, 1),
    ),
}


@pytest.mark.parametrize(("raw", "convention", "usage"), SHAPES.values(), ids=SHAPES)
def test_every_shape_gives_the_same_nouns(raw: dict[str, object], convention: str, usage: Usage) -> None:
    report = read(raw)
    assert report.usage == usage
    assert report.convention == convention
    assert report.flags == frozenset()
    assert report.raw_json is not None
    assert json.loads(report.raw_json) == raw


def test_nothing_reported_is_no_usage() -> None:
    merger = UsageMerger()
    assert not merger.seen
    assert merger.result() == UsageReport()
    merger.add({"something": 1, "else": None})
    assert not merger.seen
    assert merger.result().usage is None


def test_null_is_unknown_and_not_zero() -> None:
    report = read({"prompt_tokens": None, "completion_tokens": 4})
    assert report.usage == Usage(None, None, 4)
    assert report.flags == frozenset()


def test_cumulative_chunks_are_not_summed() -> None:
    chunks: list[dict[str, object]] = [
        {"prompt_tokens": 50, "completion_tokens": n, "total_tokens": 50 + n} for n in range(1, 20)
    ]
    last: dict[str, object] = chunks[-1] | {"prompt_tokens_details": {"cached_tokens": 48}}
    assert read(*chunks, last).usage == Usage(50, 48, 19)


def test_a_later_null_does_not_erase_what_is_known() -> None:
    first: dict[str, object] = {
        "prompt_tokens": 50,
        "completion_tokens": 1,
        "prompt_tokens_details": {"cached_tokens": 7},
    }
    assert read(first, first | {"prompt_tokens_details": None}).usage == Usage(50, 7, 1)


def test_details_may_come_before_or_after() -> None:
    bare: dict[str, object] = {"prompt_tokens": 50, "completion_tokens": 1, "prompt_tokens_details": None}
    full = bare | {"prompt_tokens_details": {"cached_tokens": 7}}
    assert read(bare, full).usage == read(full, bare).usage == Usage(50, 7, 1)


def test_an_anthropic_stream_is_start_and_delta_together() -> None:
    start: dict[str, object] = {
        "input_tokens": 100,
        "cache_read_input_tokens": 4_000,
        "cache_creation_input_tokens": 20,
        "output_tokens": 1,
    }
    assert read(start, {"output_tokens": 55}).usage == Usage(4_120, 4_000, 55, 20)


def test_an_anthropic_stream_may_tell_the_cache_only_at_its_end() -> None:
    delta: dict[str, object] = {"cache_read_input_tokens": 4_000, "output_tokens": 55}
    assert read({"input_tokens": 100, "output_tokens": 0}, delta).usage == Usage(4_100, 4_000, 55)


def test_a_count_replaces_a_text_and_a_text_replaces_no_count() -> None:
    assert read({"prompt_tokens": "?"}, {"prompt_tokens": 5}).usage == Usage(5, None, None)
    assert read({"prompt_tokens": 5}, {"prompt_tokens": "?"}).usage == Usage(5, None, None)
    assert read({"prompt_tokens": "?"}, {"prompt_tokens": "!"}).flags == {UsageFlag.INVALID}
    assert read({"prompt_tokens": {"a": 1}}, {"prompt_tokens": 5}).usage == Usage(5, None, None)


def test_the_result_may_be_read_in_the_middle() -> None:
    merger = UsageMerger()
    merger.add({"prompt_tokens": 5, "completion_tokens": 1})
    assert merger.result() is merger.result()
    merger.add({"prompt_tokens": 5, "completion_tokens": 2})
    assert merger.result().usage == Usage(5, None, 2)


@pytest.mark.parametrize("value", [math.nan, math.inf, 12.0, True, "12", [1], {"n": 1}, LARGEST_COUNT + 1, 10**400])
def test_what_is_no_count_is_unknown_and_flagged(value: object) -> None:
    report = read({"prompt_tokens": value, "completion_tokens": 3})
    assert report.usage == Usage(None, None, 3)
    assert report.flags == {UsageFlag.INVALID}


def test_a_number_too_large_to_count_is_kept_as_evidence() -> None:
    assert read({"prompt_tokens": 2**70, "completion_tokens": 3}).raw_json == (
        b'{"prompt_tokens":1180591620717411303424,"completion_tokens":3}'
    )


def test_details_that_are_no_object_are_unknown() -> None:
    assert read({"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": 7}).usage == Usage(9, None, 3)


@pytest.mark.parametrize(
    ("raw", "usage"),
    [
        ({"prompt_tokens": -5, "completion_tokens": 3}, Usage(0, None, 3)),
        ({"prompt_tokens": 10, "completion_tokens": -3}, Usage(10, None, 0)),
        ({"prompt_tokens": 10, "completion_tokens": 3, "cached_tokens": -1}, Usage(10, 0, 3)),
        ({"prompt_tokens": 10, "completion_tokens": 3, "cached_tokens": 11}, Usage(10, 10, 3)),
        ({"prompt_tokens": 10, "completion_tokens": 3, "reasoning_tokens": 4}, Usage(10, None, 3, None, 3)),
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 3,
                "prompt_tokens_details": {"cached_tokens": 8, "cache_write_tokens": 5},
            },
            Usage(10, 8, 3, 2),
        ),
        ({"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 12}, Usage(10, None, 2)),
        ({"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 4}, Usage(4, None, 0)),
        ({"prompt_tokens": 10, "completion_tokens": 3, "total_tokens": 20}, Usage(10, None, 3)),
        ({"prompt_tokens": 10, "total_tokens": 4}, Usage(4, None, 0)),
        (
            {"input_tokens": 5, "cache_creation_input_tokens": 9, "cache_creation": {"ephemeral_5m_input_tokens": 7}},
            Usage(12, None, None, 7),
        ),
    ],
)
def test_contradictions_go_in_the_tenants_favour_and_are_flagged(raw: dict[str, object], usage: Usage) -> None:
    report = read(raw)
    assert report.usage == usage
    assert report.flags == {UsageFlag.CLAMPED}


def test_a_report_too_long_to_keep_is_still_read() -> None:
    report = read({"prompt_tokens": 5, "completion_tokens": 1, "note": [1] * MOST_RAW_BYTES})
    assert report.usage == Usage(5, None, 1)
    assert report.raw_json is None


@pytest.mark.parametrize("text", ["what I asked", "x" * 65, "砂漠を渡る", "", "a@b.example"])
def test_texts_of_a_report_are_not_kept(text: str) -> None:
    raw: dict[str, object] = {"prompt_tokens": 3, "note": text, "details": [{text: 1}], "service_tier": "batch-1.5"}
    report = read(raw)
    assert report.raw_json is not None
    kept = {"prompt_tokens": 3, "note": "<text>", "details": [{"<text>": 1}], "service_tier": "batch-1.5"}
    assert json.loads(report.raw_json) == kept


def test_a_report_that_is_no_json_is_still_read() -> None:
    deep: dict[str, object] = {}
    for _ in range(100_000):
        deep = {"d": deep}
    for odd in (deep, object(), 10**5000):
        report = read({"prompt_tokens": 5, "completion_tokens": 1, "odd": odd})
        assert report.usage == Usage(5, None, 1)
        assert report.raw_json is None
    # Taken apart from the outside, since the interpreter itself cannot free it otherwise on every version.
    while deep:
        deep = deep.pop("d")  # type: ignore[assignment]  # it is nothing but such dicts


counts = st.one_of(st.none(), st.integers(-10, 60), st.floats(), st.booleans(), st.just(10**30), st.text(max_size=2))
keys = st.sampled_from(
    [
        "prompt_tokens",
        "completion_tokens",
        "total_tokens",
        "cached_tokens",
        "input_tokens",
        "output_tokens",
        "cache_read_input_tokens",
        "cache_creation_input_tokens",
        "prompt_cache_hit_tokens",
        "prompt_cache_miss_tokens",
        "reasoning_tokens",
    ]
)
details = st.dictionaries(
    st.sampled_from(["prompt_tokens_details", "input_tokens_details", "cache_creation", "output_tokens_details"]),
    st.one_of(
        counts,
        st.dictionaries(
            st.sampled_from(["cached_tokens", "cache_write_tokens", "ephemeral_5m_input_tokens", "reasoning_tokens"]),
            counts,
        ),
    ),
)
reports = st.builds(lambda flat, nested: flat | nested, st.dictionaries(keys, counts), details)


@settings(deadline=None)
@given(st.lists(reports, max_size=4))
def test_no_report_raises_and_every_usage_is_consistent(raw: list[dict[str, object]]) -> None:
    report = read(*raw)
    usage = report.usage
    if usage is None:
        return
    assert all(count is None or count >= 0 for count in astuple(usage))
    if usage.prompt_tokens is not None:
        assert (usage.cached_tokens or 0) + (usage.cache_write_tokens or 0) <= usage.prompt_tokens
    if usage.output_tokens is not None:
        assert (usage.reasoning_tokens or 0) <= usage.output_tokens
    assert checked(usage) == (usage, frozenset())
    buckets = Buckets.of(usage)
    assert all(count is None or count >= 0 for count in astuple(buckets))
    if usage.prompt_tokens is not None:
        heaps = (buckets.fresh_tokens, buckets.cached_tokens, buckets.cache_write_tokens)
        assert sum(tokens or 0 for tokens in heaps) == usage.prompt_tokens


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1))
def test_a_stream_ends_at_its_largest_counts_in_any_order(chunks: list[tuple[int, int]]) -> None:
    merger = UsageMerger()
    for prompt, output in chunks:
        merger.add({"prompt_tokens": prompt, "completion_tokens": output})
    report = merger.result()
    assert report.usage == Usage(max(p for p, _ in chunks), None, max(o for _, o in chunks))
