"""What is told is most likely, what is weighed is the average; both are what an engine can reuse."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.scheduling.expectation import DISK_WORTH, HOST_WORTH, Coverage, expectation


def expected(known: Coverage, prompt_tokens: int = 1000, engine_block: int | None = 16) -> tuple[int, float]:
    return expectation(known, block_size=16, prompt_tokens=prompt_tokens, engine_block_tokens=engine_block)


def test_a_run_that_is_more_likely_there_than_not_is_told_whole_and_weighed_by_how_likely() -> None:
    assert expected(Coverage(10, survival=0.9)) == pytest.approx((160, 144))
    assert expected(Coverage(10, survival=0.5)) == pytest.approx((160, 80))
    assert expected(Coverage(10, survival=0.49)) == pytest.approx((0, 78.4))
    assert expected(Coverage()) == (0, 0)


def test_a_speculation_is_weighed_whole_and_not_told() -> None:
    assert expected(Coverage(0, 10)) == (0, 160)
    assert expected(Coverage(20, 10, survival=0.5)) == (320, 160 + 80)
    assert expected(Coverage(5, 10, survival=0.25)) == (0, 160)


def test_what_slower_memories_have_is_told_whole_and_weighed_in_part() -> None:
    assert expected(Coverage(10, host_blocks=20)) == pytest.approx((320, 160 + HOST_WORTH * 160))
    assert expected(Coverage(10, disk_blocks=20)) == pytest.approx((320, 160 + DISK_WORTH * 160))
    both = Coverage(10, survival=0.25, host_blocks=20, disk_blocks=30)
    assert expected(both) == pytest.approx((480, 40 + HOST_WORTH * 160 + DISK_WORTH * 160))
    assert expected(Coverage(20, host_blocks=10, disk_blocks=10)) == (320, 320)


def test_a_prompt_is_never_reused_whole_and_by_blocks_of_the_engine_only() -> None:
    assert expected(Coverage(4), 64) == (48, 48)
    assert expected(Coverage(4), 64, engine_block=1) == (63, 63)
    assert expected(Coverage(9), 1000, engine_block=128) == (128, 128)
    assert expected(Coverage(4), 1000, engine_block=None) == (64, 64)
    assert expected(Coverage(4, withheld_tokens=16), 1000) == (48, 48)
    assert expected(Coverage(0, withheld_tokens=16), 1000) == (0, 0)


coverages = st.builds(
    Coverage,
    confirmed_blocks=st.integers(0, 100),
    speculative_blocks=st.integers(0, 100),
    survival=st.floats(0, 1),
    host_blocks=st.integers(0, 100),
    disk_blocks=st.integers(0, 100),
    withheld_tokens=st.sampled_from([0, 1, 16]),
)


@given(coverages, st.integers(0, 3000), st.sampled_from([None, 1, 16, 32, 128]))
def test_both_are_below_the_prompt_and_no_more_than_what_is_known(
    known: Coverage, prompt_tokens: int, engine_block: int | None
) -> None:
    told, average = expected(known, prompt_tokens, engine_block)
    most = 16 * max(known.confirmed_blocks, known.speculative_blocks, known.host_blocks, known.disk_blocks)
    assert 0 <= told <= min(most, max(prompt_tokens - 1, 0))
    assert 0 <= average <= min(most, max(prompt_tokens - 1, 0))


@given(coverages, st.integers(0, 3000))
def test_the_likelier_it_is_there_the_more_is_weighed(known: Coverage, prompt_tokens: int) -> None:
    rising = [
        expected(Coverage(known.confirmed_blocks, known.speculative_blocks, p / 10), prompt_tokens)[1]
        for p in range(11)
    ]
    assert all(later >= earlier - 1e-9 for earlier, later in pairwise(rising))
