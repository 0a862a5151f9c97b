"""The structures under the policies against oracles that do it the long way."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from gateway.sim.policies.active_blocks import ActiveBlocks
from gateway.sim.policies.last_holders import LastHolders
from gateway.sim.policies.prefixes import Approximate, Precise
from tests.gateway.sim.policies.fleet import chain, fleet, request

names = st.text("ab", max_size=7)


@given(st.lists(st.tuples(names, st.integers(0, 2))), names)
def test_the_last_holder_of_the_longest_known_prefix(sent: list[tuple[str, int]], wanted: str) -> None:
    tree = LastHolders()
    last: dict[str, int] = {}
    for text, endpoint in sent:
        tree.record(chain(text), endpoint)
        last.update({text[:end]: endpoint for end in range(1, len(text) + 1)})
    longest = max((end for end in range(1, len(wanted) + 1) if wanted[:end] in last), default=0)
    assert tree.match(chain(wanted)) == (last.get(wanted[:longest]), longest)
    assert tree.blocks == len(last)


@given(st.lists(st.tuples(names, st.integers(0, 2))), st.integers(0, 10))
def test_what_is_forgotten_are_leaves_the_oldest_first(sent: list[tuple[str, int]], keep: int) -> None:
    tree = LastHolders()
    for text, endpoint in sent:
        tree.record(chain(text), endpoint)
    tree.evict(keep)
    assert tree.blocks <= keep
    reached = {text[:end] for text, _ in sent for end in range(1, tree.match(chain(text))[1] + 1)}
    assert tree.blocks == len(reached)  # nothing is kept that no walk can reach
    tree.evict(0)
    assert tree.blocks == 0
    assert all(tree.match(chain(text)) == (None, 0) for text, _ in sent)


def test_the_prefix_used_last_is_forgotten_last() -> None:
    tree = LastHolders()
    for text in ("ab", "cd", "ab"):
        tree.record(chain(text), 0)
    tree.evict(2)
    assert tree.match(chain("ab")) == (0, 2)
    assert tree.match(chain("cd")) == (None, 0)


@given(st.lists(names), st.data())
def test_distinct_blocks_in_use(texts: list[str], data: st.DataObject) -> None:
    active = ActiveBlocks()
    on = [request(number, text) for number, text in enumerate(texts)]
    in_use = dict(enumerate(texts))
    for each in on:
        active.sent(each, 1, 0.0)
    for each in data.draw(st.permutations(on)):
        assert active.blocks(1) == len(_prefixes(in_use.values()))
        wanted = data.draw(names)
        expected = [len(_prefixes([*in_use.values(), wanted])), len(wanted)]
        assert active.with_request(request(99, wanted), [1, 0]) == expected
        del in_use[each.number]
        active.ended(each, 1, 0.0)
    assert active.blocks(1) == active.blocks(0) == 0


def _prefixes(texts: Iterable[str]) -> set[str]:
    return {text[:end] for text in texts for end in range(1, len(text) + 1)}


def test_memory_of_what_was_sent_ends_at_each_endpoints_capacity() -> None:
    memory, view = Approximate(capacity_blocks=4), fleet(3)
    memory.sent(request(0, "abc"), 0, 0.0)
    memory.sent(request(1, "ab"), 2, 0.0)
    assert list(memory.runs(chain("abcd"), view)) == [3, 0, 2]
    memory.sent(request(2, "xyz"), 0, 0.0)  # 3 + 3 > 4: two of the older three go, its tail first
    assert list(memory.runs(chain("abcd"), view)) == [1, 0, 2]
    memory.restarted(0, 0.0)  # nobody told
    assert list(memory.runs(chain("xyz"), view)) == [3, 0, 0]


def test_a_bounded_look_takes_whole_blocks_of_the_beginning() -> None:
    memory = Approximate(capacity_blocks=100, most_tokens=40)
    looked_at = memory.looked_at(chain("abcd"))  # 40 tokens hold 2 whole blocks of 16
    assert looked_at.hashes == chain("ab").hashes
    assert memory.looked_at(chain("ab")) == chain("ab")


def test_what_is_cached_indeed_is_asked_of_the_living() -> None:
    view = fleet(3, dead=[1])
    view.caches = {0: [chain("ab")], 1: [chain("abc")]}
    assert list(Precise().runs(chain("abc"), view)) == [2, 0, 0]
    assert Precise().looked_at(chain("abc")) == chain("abc")
