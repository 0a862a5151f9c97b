"""Texts of a load: equal prefixes are equal texts, and nothing else is."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.measuring.errors import LoadUnusable
from gateway.measuring.shapes import BLOCK_TOKENS, Shape, shaped
from gateway.measuring.wording import Wording, WordTokens
from gateway.sim.ceiling import ceiling_of
from gateway.sim.loads import arrivals
from gateway.sim.loads.names import pack
from gateway.sim.types import SimRequest
from prefix_index import Chain

word_tokens = st.builds(WordTokens, st.floats(0.5, 4.0), st.floats(0, 40))
chains = st.lists(st.integers(0, 2), max_size=6)


def request(number: int, names: list[int], more: int = 5) -> SimRequest:
    # Equal names mean equal prefixes: each is named with all before it.
    whole = [hash(tuple(names[: place + 1])) & 0xFFFFFFFF for place in range(len(names))]
    return SimRequest(number, 0.0, Chain(pack(whole), BLOCK_TOKENS, len(names) * BLOCK_TOKENS + more), 10)


@given(word_tokens, chains, chains)
def test_two_prompts_agree_where_their_chains_do_and_part_after(of: WordTokens, one: list[int], two: list[int]) -> None:
    wording = Wording("m", of)
    texts = [wording.text(request(number, names), "salt").split() for number, names in enumerate((one, two))]
    common = 0
    while common < min(len(one), len(two)) and one[common] == two[common]:
        common += 1
    shared = min(of.words(common * BLOCK_TOKENS), *map(len, texts))
    assert texts[0][:shared] == texts[1][:shared]
    assert texts[0] != texts[1] or len(texts[0]) <= shared + 1


@given(word_tokens, chains, st.integers(0, 15))
def test_a_prompt_has_about_the_tokens_that_it_is_to_have(of: WordTokens, names: list[int], more: int) -> None:
    asked = request(0, names, more)
    words = len(Wording("m", of).text(asked, "salt").split())
    told = words * of.per_word + of.fixed
    assert abs(told - max(asked.prompt_tokens, of.fixed)) <= of.per_word + 1


def test_another_salt_is_another_text() -> None:
    asked = request(0, [1, 2])
    assert Wording("m").text(asked, "a").split()[:1] != Wording("m").text(asked, "b").split()[:1]
    assert Wording("m").text(asked, "a") == Wording("m").text(asked, "a")


def test_a_body_asks_for_a_stream_with_usage_and_the_length_of_its_answer() -> None:
    body = json.loads(Wording("m").body(request(0, [1]), "salt"))
    assert (body["model"], body["max_tokens"], body["stream"], body["ignore_eos"]) == ("m", 10, True, True)
    assert body["stream_options"] == {"include_usage": True}
    assert "ignore_eos" not in json.loads(Wording("m", ignore_eos=False).body(request(0, [1]), "salt"))


def test_a_shape_has_the_lengths_and_the_reuse_that_were_asked_for() -> None:
    load = arrivals.take(shaped(Shape(1600, 50, shared=0.5, groups=2)), 200)
    assert {one.prompt_tokens for one in load.requests} == {1600}
    assert {one.output_tokens for one in load.requests} == {50}
    assert ceiling_of(load).hit_share == pytest.approx(0.5 * 198 / 200, abs=0.01)
    assert ceiling_of(arrivals.take(shaped(Shape(1600, 50)), 50)).hit_share == 0


def test_lengths_vary_as_much_as_they_are_asked_to() -> None:
    lengths = [one.prompt_tokens for one in arrivals.take(shaped(Shape(1000, 50, cv=0.5)), 4000).requests]
    mean = sum(lengths) / len(lengths)
    assert mean == pytest.approx(1000, rel=0.05)
    assert (sum((one - mean) ** 2 for one in lengths) / len(lengths)) ** 0.5 == pytest.approx(500, rel=0.15)


@pytest.mark.parametrize("fields", [{"prompt_tokens": 0}, {"shared": 1.5}, {"cv": -1.0}, {"groups": 0}])
def test_a_shape_that_no_load_can_have_is_refused(fields: dict[str, float]) -> None:
    with pytest.raises(LoadUnusable):
        Shape(**fields)  # type: ignore[arg-type]  # ints among floats
