"""What an order is worth: whole blocks of the longest prefix shared with an earlier prompt."""

from hypothesis import given
from hypothesis import strategies as st

from prefix_index.layout import by_bytes, expected_share

FIXED = "x" * 640


def test_a_time_in_front_costs_all_and_behind_only_itself() -> None:
    assert expected_share([f"{n} {FIXED}" for n in range(10, 14)]).cached_tokens == 0
    assert expected_share([f"{FIXED} {n}" for n in range(10, 14)]).cached_tokens == 3 * 160


def test_only_whole_blocks_are_cached_and_never_the_last_token() -> None:
    assert expected_share([FIXED, FIXED]).cached_tokens == 144
    assert expected_share(["abcdefgh"] * 2, len, 4).cached_tokens == 4


def test_a_prompt_is_compared_with_the_one_it_shares_most_with() -> None:
    prompts = ["aaaa", "bbbb", "cccc", "bbbd"]
    assert expected_share(prompts, len, 1).cached_tokens == 3


def test_no_prompts_have_no_share() -> None:
    assert expected_share([]).share == 0.0


def naive(prompts: list[str]) -> int:
    cached = 0
    for at, prompt in enumerate(prompts):
        shared = [sum(1 for n in range(1, len(prompt) + 1) if other[:n] == prompt[:n]) for other in prompts[:at]]
        cached += min(max(shared, default=0), max(len(prompt) - 1, 0)) // 2 * 2
    return cached


@given(st.lists(st.text("ab", max_size=6), max_size=12))
def test_the_share_is_that_of_comparing_each_with_all_before(prompts: list[str]) -> None:
    found = expected_share(prompts, len, 2)
    assert (found.calls, found.cached_tokens) == (len(prompts), naive(prompts))


def test_four_bytes_are_a_token() -> None:
    assert [by_bytes(text) for text in ("", "a", "abcd", "日本")] == [0, 1, 1, 2]
