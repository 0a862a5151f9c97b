"""Whose trace a request belongs to, as W3C Trace Context has it."""

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.tracing.context import Parent, Sampler, new_id, parent_of

TRACE, SPAN = b"4bf92f3577b34da6a3ce929d0e0e4736", b"00f067aa0ba902b7"
VALID = b"00-" + TRACE + b"-" + SPAN + b"-01"
SENT = re.compile(rb"00-([0-9a-f]{32})-([0-9a-f]{16})-01")


def sampler(ratio: float = 1.0) -> Sampler:
    return Sampler(ratio, random.Random(7))


@pytest.mark.parametrize(
    ("value", "sampled"),
    [
        (VALID, True),
        (VALID[:-2] + b"00", False),
        (VALID[:-2] + b"02", False),
        (VALID[:-2] + b"03", True),
        (b"01" + VALID[2:], True),
        (b"cc" + VALID[2:] + b"-what-comes-later", True),
        (b"cc" + VALID[2:-2] + b"08-", False),
    ],
)
def test_a_parent_is_read(value: bytes, sampled: bool) -> None:
    assert parent_of(((b"accept", b"*/*"), (b"traceparent", value))) == Parent(TRACE, SPAN, sampled)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"ff" + VALID[2:],
        VALID + b"-more",
        VALID + b"-",
        VALID.upper(),
        VALID[:-1],
        VALID + b"1",
        b"cc" + VALID[2:] + b".more",
        VALID.replace(TRACE, b"0" * 32),
        VALID.replace(SPAN, b"0" * 16),
        VALID.replace(b"-", b"_"),
        VALID.replace(b"4b", b"4g"),
    ],
)
def test_what_is_not_of_its_form_is_none(value: bytes) -> None:
    assert parent_of(((b"traceparent", value),)) is None


def test_of_two_parents_neither_counts() -> None:
    assert parent_of(((b"traceparent", VALID), (b"traceparent", VALID))) is None


@given(st.binary(max_size=80))
def test_whatever_is_sent_there_is_a_trace_with_ids_of_its_form(value: bytes) -> None:
    trace = sampler().trace_of(((b"traceparent", value),))
    assert trace is not None
    (*_, (name, sent)) = trace.attempt(())
    found = SENT.fullmatch(sent)
    assert name == b"traceparent"
    assert found is not None
    assert (found[1], found[2]) == (trace.trace_id, trace.attempt_ids[-1])


def test_the_callers_word_goes_before_chance() -> None:
    kept = sampler(0.0).trace_of(((b"traceparent", VALID),))
    assert kept is not None
    assert (kept.trace_id, kept.parent_id) == (TRACE, SPAN)
    assert sampler(1.0).trace_of(((b"traceparent", VALID[:-2] + b"00"),)) is None


def test_without_a_parent_chance_decides() -> None:
    half = sampler(0.5)
    traced = sum(half.trace_of(()) is not None for _ in range(1000))
    assert 400 < traced < 600  # of 1,000 throws of a seeded coin
    assert sampler(0.0).trace_of(()) is None


def test_each_attempt_is_a_caller_of_its_own_and_the_state_of_the_trace_goes_along() -> None:
    trace = sampler().trace_of(((b"traceparent", VALID),))
    assert trace is not None
    given = ((b"traceparent", VALID), (b"accept", b"*/*"), (b"tracestate", b"a=1"), (b"tracestate", b"b=2"))
    first, second = trace.attempt(given), trace.attempt(given)
    assert first[:-1] == second[:-1] == given[1:]
    assert [fields[-1][1][36:52] for fields in (first, second)] == trace.attempt_ids
    assert len({*trace.attempt_ids, trace.span_id}) == 3


@pytest.mark.parametrize("parent", [(), ((b"traceparent", b"unreadable"),)])
def test_the_state_of_a_trace_that_is_not_continued_ends_here(parent: tuple[tuple[bytes, bytes], ...]) -> None:
    trace = sampler().trace_of(parent)
    assert trace is not None
    sent = trace.attempt((*parent, (b"tracestate", b"a=1"), (b"accept", b"*/*")))
    assert [name for name, _ in sent] == [b"accept", b"traceparent"]


def test_no_id_is_only_zeros() -> None:
    class Dice(random.Random):
        values = iter([0, 0, 5])

        def getrandbits(self, k: int, /) -> int:
            return next(self.values)

    assert new_id(Dice(), 64) == b"0000000000000005"
