"""What is said of one engine's report: whether it can be true, and why what could have been cached was not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing import Verdict
from billing.verification.verdicts import (
    MOST_MISS_BYTES,
    SUSPECT_WINDOW,
    Miss,
    MissReason,
    Prefixes,
    Suspects,
    is_doubtful,
    miss_of,
    verdict_of,
)

BLOCK = 16
TOKENS = st.integers(0, 200_000)


@pytest.mark.parametrize(
    ("expected", "reported", "verdict"),
    [
        (1600, 1600, Verdict.VERIFIED),
        (1600, 1616, Verdict.VERIFIED),
        (1600, 1584, Verdict.VERIFIED),
        (1600, 1617, Verdict.ENGINE_HIGHER),
        (1600, 1583, Verdict.ENGINE_LOWER),
        (0, 0, Verdict.VERIFIED),
        (1600, 0, Verdict.ENGINE_LOWER),
        (0, 1600, Verdict.ENGINE_HIGHER),
        (1600, None, Verdict.UNREPORTED),
        (None, None, Verdict.UNREPORTED),
        (None, 1600, None),
    ],
)
def test_a_report_is_verified_within_a_block(
    expected: int | None, reported: int | None, verdict: Verdict | None
) -> None:
    assert verdict_of(expected, reported, BLOCK) is verdict


MISSES: dict[str, tuple[int, Prefixes, str | None]] = {
    "a full hit is no miss": (1584, Prefixes(reusable=1600, expected=1584), None),
    "nothing was ever sent": (0, Prefixes(reusable=1600, expected=0), "cold"),
    "others had sent it, the rest is new": (320, Prefixes(reusable=1600, expected=320), None),
    "a further turn": (800, Prefixes(reusable=1600, expected=800, sent_before=800), None),
    "a further turn of a conversation that was pushed off the list": (
        800,
        Prefixes(reusable=1600, expected=800, sent_before=320, parted=True),
        None,
    ),
    "the prompt parts from the one before": (
        320,
        Prefixes(reusable=1600, expected=320, sent_before=320, parted=True),
        "prompt_changed:320",
    ),
    "it parts within the first block": (
        0,
        Prefixes(reusable=1600, expected=0, sent_before=0, parted=True),
        "prompt_changed:0",
    ),
    "the engine has less than it had": (320, Prefixes(reusable=1600, expected=960, sent_before=960), "evicted"),
    "nobody has what was sent before": (0, Prefixes(reusable=1600, expected=0, sent_before=960), "evicted"),
    "its engine has started anew": (
        0,
        Prefixes(reusable=1600, expected=0, sent_before=960, restarted=True),
        "restarted",
    ),
    "it was so long ago that the index had forgotten it": (
        0,
        Prefixes(reusable=1600, expected=0, sent_before=960, expired=True),
        "expired",
    ),
    "it was long ago, and the engine has started anew since": (
        0,
        Prefixes(reusable=1600, expected=0, sent_before=960, expired=True, restarted=True),
        "restarted",
    ),
    "it was long ago, but the index knew of it": (
        0,
        Prefixes(reusable=1600, expected=960, sent_before=960, expired=True),
        "evicted",
    ),
    "another endpoint had it": (
        320,
        Prefixes(reusable=1600, expected=320, elsewhere=1280, sent_before=1280),
        "routed_elsewhere:960",
    ),
    "another endpoint had it, and was away": (0, Prefixes(reusable=1600, expected=0, unable=1280), "routed_elsewhere"),
    "another endpoint had hardly more": (
        320,
        Prefixes(reusable=1600, expected=320, elsewhere=336, sent_before=320, parted=True),
        "prompt_changed:320",
    ),
    "the engine had less than both": (
        0,
        Prefixes(reusable=1600, expected=960, elsewhere=1280),
        "routed_elsewhere:1280",
    ),
}


@pytest.mark.parametrize(("reported", "prefixes", "reason"), MISSES.values(), ids=MISSES)
def test_a_miss_has_the_reason_that_explains_it(reported: int, prefixes: Prefixes, reason: str | None) -> None:
    miss = miss_of(reported, prefixes, BLOCK)
    assert (None if miss is None else str(miss)) == reason


@pytest.mark.parametrize(
    ("reported", "prefixes", "lost"),
    [
        (0, Prefixes(reusable=1600, expected=0), 0),
        (320, Prefixes(reusable=1600, expected=960, sent_before=1280), 960),
        (0, Prefixes(reusable=1600, expected=0, sent_before=960, restarted=True), 960),
        (16, Prefixes(reusable=1600, expected=0, sent_before=960, expired=True), 944),
        (320, Prefixes(reusable=1600, expected=320, elsewhere=1280), 960),
        (320, Prefixes(reusable=1600, expected=320, unable=1280), 960),
        (320, Prefixes(reusable=1600, expected=320, sent_before=320, parted=True, equal_behind=640), 640),
        (320, Prefixes(reusable=1600, expected=320, sent_before=320, parted=True, equal_behind=9999), 1280),
        (320, Prefixes(reusable=1600, expected=320, sent_before=320, parted=True), 0),
    ],
)
def test_a_miss_lost_what_would_have_been_cached_but_for_its_reason(
    reported: int, prefixes: Prefixes, lost: int
) -> None:
    miss = miss_of(reported, prefixes, BLOCK)
    assert miss is not None
    assert miss.lost_tokens == lost


@given(
    TOKENS,
    st.builds(
        Prefixes,
        reusable=TOKENS,
        expected=TOKENS,
        elsewhere=TOKENS,
        unable=TOKENS,
        sent_before=st.none() | TOKENS,
        parted=st.booleans(),
        restarted=st.booleans(),
        expired=st.booleans(),
        equal_behind=TOKENS,
    ),
)
def test_every_miss_fits_its_column_and_is_read_back(reported: int, prefixes: Prefixes) -> None:
    miss = miss_of(reported, prefixes, BLOCK)
    if miss is None:
        return
    assert len(str(miss).encode()) <= MOST_MISS_BYTES
    read = Miss.read(str(miss))
    assert (read.reason, read.number) == (miss.reason, miss.number)
    assert reported + BLOCK < prefixes.reusable
    assert miss.number is None or miss.number >= 0
    assert miss.lost_tokens is not None
    assert 0 <= miss.lost_tokens <= 200_000


@pytest.mark.parametrize("reason", MissReason)
def test_a_number_beyond_all_measure_fits_its_column_too(reason: MissReason) -> None:
    assert len(str(Miss(reason, 1 << 40))) <= MOST_MISS_BYTES


def test_what_is_no_reason_is_not_read() -> None:
    with pytest.raises(ValueError, match="weather"):
        Miss.read("weather")


@pytest.mark.parametrize(
    ("prompt", "cached", "expected", "doubtful"),
    [
        (1000, 999, 0, True),
        (1000, 999, 499, True),
        (1000, 999, 500, False),
        (1000, 999, None, False),
        (1000, 998, 0, False),
        (None, 999, 0, False),
        (1, 0, 0, False),
        (1000, None, 0, False),
    ],
)
def test_all_but_one_token_is_doubted_where_little_was_expected(
    prompt: int | None, cached: int | None, expected: int | None, doubtful: bool
) -> None:
    assert is_doubtful(prompt, cached, expected) is doubtful


def test_t_doubtful_reports_again_and_again_make_an_endpoint_a_suspect_once() -> None:
    suspects = Suspects()
    told = [suspects.note("decode", doubtful=n % 2 == 0) for n in range(8)]
    assert told == [False, False, False, False, True, False, False, False]
    assert suspects.is_suspect("decode")
    assert not suspects.is_suspect("other")
    for _ in range(SUSPECT_WINDOW):
        suspects.note("decode", doubtful=False)
    assert not suspects.is_suspect("decode")
    suspects.forget("decode")
    assert not suspects.is_suspect("decode")
