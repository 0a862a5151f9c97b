"""Usage as real servers sent it: every captured answer, plain and streamed, in four disjoint heaps that add up."""

import json
from pathlib import Path

import pytest

from billing import Buckets, UsageMerger, UsageReport
from gateway.relay import PlainTee, StreamTee
from gateway.stream_format import format_of
from gateway.types import Route

CAPTURES = Path(__file__).parents[1] / "data" / "captures"
ROUTES = {
    "chat": Route.CHAT,
    "completions": Route.COMPLETIONS,
    "messages": Route.MESSAGES,
    "responses": Route.RESPONSES,
}


def route_of(path: Path) -> Route | None:
    """By the name of a capture, SERVER-KIND-WHAT; None for what is no answer."""
    words = path.stem.split("-")
    if {"err", "form", "tokenize"} & set(words):
        return None
    return next((route for word, route in ROUTES.items() if word in words[1:4]), None)


STREAMS = [path for path in sorted(CAPTURES.glob("*.sse")) if route_of(path) is not None]
PLAIN = [path for path in sorted(CAPTURES.glob("*.json")) if route_of(path) is not None]


def streamed(path: Path, chunk_bytes: int) -> UsageReport:
    route = route_of(path)
    assert route is not None
    tee = StreamTee(format_of(route), keep_usage=True)
    data = path.read_bytes()
    for start in range(0, len(data), chunk_bytes):
        tee.feed(data[start : start + chunk_bytes])
    tee.held()
    return tee.usage.result()


def plain(path: Path) -> UsageReport:
    tee = PlainTee()
    tee.feed(path.read_bytes())
    tee.held()
    return tee.usage.result()


def assert_adds_up(report: UsageReport) -> None:
    usage = report.usage
    assert usage is not None
    assert report.flags == frozenset()
    assert report.raw_json is not None
    raw = json.loads(report.raw_json)
    buckets = Buckets.of(usage)
    assert buckets.fresh_tokens is not None
    assert buckets.output_tokens is not None
    heaps = (buckets.fresh_tokens, buckets.cached_tokens or 0, buckets.cache_write_tokens or 0)
    assert min(*heaps, buckets.output_tokens) >= 0
    assert sum(heaps) == usage.prompt_tokens
    assert raw.get("total_tokens") in (None, sum(heaps) + buckets.output_tokens)


def test_there_is_something_to_look_at() -> None:
    assert len(STREAMS) > 25
    assert len(PLAIN) > 25


@pytest.mark.parametrize("path", STREAMS, ids=lambda path: path.stem)
def test_a_captured_stream_has_its_usage_in_heaps_that_add_up_for_any_chunks(path: Path) -> None:
    whole = streamed(path, 1 << 20)
    assert_adds_up(whole)
    assert streamed(path, 7) == whole


@pytest.mark.parametrize("path", PLAIN, ids=lambda path: path.stem)
def test_a_captured_answer_has_its_usage_in_heaps_that_add_up(path: Path) -> None:
    assert_adds_up(plain(path))


@pytest.mark.parametrize(
    "path", [path for path in PLAIN if path.with_name(f"{path.stem}-stream.sse").exists()], ids=lambda path: path.stem
)
def test_a_stream_and_a_plain_answer_to_one_request_have_one_prompt(path: Path) -> None:
    """The faults of two code paths for one usage: a client saw 1,792 cached tokens, and the ledger kept 0."""
    one, other = plain(path), streamed(path.with_name(f"{path.stem}-stream.sse"), 64)
    assert one.usage is not None
    assert other.usage is not None
    assert one.usage.prompt_tokens == other.usage.prompt_tokens
    assert (one.usage.cached_tokens is None) == (other.usage.cached_tokens is None)


@pytest.mark.parametrize(
    "line", (CAPTURES / "usage-reports.jsonl").read_text().splitlines(), ids=lambda line: json.loads(line)["capture"]
)
def test_a_captured_report_is_kept_as_it_came(line: str) -> None:
    raw = json.loads(line)["usage"]
    merger = UsageMerger()
    merger.add(raw)
    report = merger.result()
    assert_adds_up(report)
    assert report.raw_json is not None
    assert json.loads(report.raw_json) == raw
