"""What both radix indexes promise beyond the contract: order of loss, bounds, and nothing left behind."""

import pytest

from prefix_index.radix import MAX_FORGOTTEN_NODES, MAX_NODES, RadixIndex
from prefix_index.types import Chain, Load
from tests.prefix_index.subjects import InRedis, Subject, chain


def stored_nodes(subject: Subject) -> int:
    if isinstance(subject, InRedis):
        return subject.stored_nodes()
    assert isinstance(subject, RadixIndex)
    return len(subject._nodes)


def comb(subject: Subject, teeth: int) -> str:
    """Prompts that part from one spine at every block: every block of the spine is a node of its own."""
    for tooth in range(teeth):
        subject.observe("a", chain("x" * tooth + "y"))
    return "x" * (teeth - 1)


def test_an_empty_index_matches_nothing(subject: Subject) -> None:
    found = subject.match(chain("xxx"))
    assert (dict(found.blocks), found.walked_blocks, found.truncated) == ({}, 0, False)
    assert subject.blocks_of("a") == 0


def test_an_empty_chain_is_neither_learned_nor_matched(subject: Subject) -> None:
    assert subject.observe("a", chain("")) == 0
    assert subject.match(chain("")).blocks == {}
    assert subject.forget("a", chain(""), 0) == 0


def test_chains_that_part_at_every_position_match_up_to_there(subject: Subject) -> None:
    spine = "x" * 12
    subject.observe("a", chain(spine))
    for parting in range(12):
        subject.observe("b", chain(spine[:parting] + "y" * 3))
    for parting in range(12):
        found = subject.match(chain(spine[:parting] + "z"))
        assert found.blocks == ({"a": parting, "b": min(parting, 11)} if parting else {})
    assert subject.match(chain(spine)).blocks == {"a": 12, "b": 11}
    assert subject.check() == []


def test_a_hit_after_a_gap_is_no_hit(subject: Subject) -> None:
    subject.observe("a", chain("xxxxxx"))
    subject.forget("a", chain("xxxxxx"), 2)
    assert subject.match(chain("xxxxxx")).blocks == {"a": 2}


def test_a_lost_block_takes_all_branches_below_it(subject: Subject) -> None:
    for branch in ("xxy", "xxz", "xxxxx"):
        subject.observe("a", chain(branch))
        subject.observe("b", chain(branch))
    assert subject.forget("a", chain("xxq"), 1) == 6
    assert subject.match(chain("xxy")).blocks == {"a": 1, "b": 3}
    subject.observe("a", chain("xx"))
    assert subject.match(chain("xxy")).blocks == {"a": 2, "b": 3}
    assert subject.check() == []


def test_a_chat_that_grows_stays_one_node(subject: Subject) -> None:
    for turn in range(1, 30):
        assert subject.observe("a", chain("x" * turn)) == 1
    assert stored_nodes(subject) == 1
    assert subject.match(chain("x" * 40)).blocks == {"a": 29}


def test_the_least_recently_used_goes_first_and_tails_before_heads(subject: Subject) -> None:
    for prompt in ("xxxx", "yyyy", "xxxx"):
        subject.observe("a", chain(prompt))
    assert subject.evict("a", 6) == 6
    assert subject.match(chain("yyyy")).blocks == {"a": 2}
    assert subject.evict("a", 2) == 2
    assert subject.match(chain("yyyy")).blocks == {}
    assert subject.match(chain("xxxx")).blocks == {"a": 2}


def test_using_a_branch_keeps_its_stem(subject: Subject) -> None:
    for prompt in ("xxyy", "xxzz", "wwww", "xxyy"):
        subject.observe("a", chain(prompt))
    assert subject.evict("a", 4) == 4
    assert subject.match(chain("xxyy")).blocks == {"a": 4}


def test_what_one_holder_loses_others_keep(subject: Subject) -> None:
    for holder in ("a", "b"):
        subject.observe(holder, chain("xxxxxx"))
    subject.evict("a", 2)
    assert subject.match(chain("xxxxxx")).blocks == {"a": 2, "b": 6}


def test_a_large_capacity_is_enforced_with_slack(subject: Subject) -> None:
    subject.set_capacity("a", 640)
    subject.observe("a", chain("x" * 600))
    subject.observe("a", chain("y" * 40))
    assert subject.blocks_of("a") == 640
    subject.observe("a", chain("z"))
    assert subject.blocks_of("a") == 640 - 640 // 64
    assert subject.match(chain("z")).blocks == {"a": 1}
    assert subject.match(chain("y" * 40)).blocks == {"a": 40}


def test_a_prompt_longer_than_the_capacity_keeps_its_head(subject: Subject) -> None:
    subject.set_capacity("a", 5)
    subject.observe("a", chain("x" * 9))
    assert subject.match(chain("x" * 9)).blocks == {"a": 5}


def test_a_walk_ends_at_the_cap_on_nodes_and_says_so(subject: Subject) -> None:
    spine = comb(subject, MAX_NODES + 20)
    found = subject.match(chain(spine))
    assert found.truncated
    assert found.blocks == {"a": MAX_NODES}
    assert found.walked_blocks == MAX_NODES
    assert subject.observe("b", chain(spine)) == MAX_NODES
    assert subject.match(chain(spine)).blocks == {"a": MAX_NODES, "b": MAX_NODES}
    assert subject.check() == []


def test_a_holder_that_lost_a_bushy_stem_starts_anew(subject: Subject) -> None:
    stem = chain("x")
    for branch in range(MAX_FORGOTTEN_NODES + 1):
        leaf = bytes([branch % 256, branch // 256, *b"leaf.."])
        subject.observe("a", Chain(stem.hashes + leaf, 16, 32))
    subject.observe("a", chain("yyy"))
    subject.observe("b", stem)
    assert subject.forget("a", stem, 0) == MAX_FORGOTTEN_NODES + 5
    assert subject.match(chain("yyy")).blocks == {}
    assert subject.match(stem).blocks == {"b": 1}
    assert subject.check() == []


def test_an_ended_generation_is_given_back_a_little_at_a_time(subject: Subject) -> None:
    for branch in range(300):
        leaf = bytes([branch % 256, branch // 256, *b"leaf.."])
        subject.observe("a", Chain(chain("x").hashes + leaf, 16, 32))
    subject.clear("a")
    assert subject.match(chain("x")).blocks == {}
    assert subject.blocks_of("a") == 0
    assert stored_nodes(subject) > 200
    subject.observe("a", chain("x"))
    assert subject.match(chain("x")).blocks == {"a": 1}
    for _ in range(20):
        subject.set_capacity("b", 5)
        subject.clear("b")
        assert subject.check() == []
    assert stored_nodes(subject) == 1


def test_generations_without_end_need_no_more_room(subject: Subject) -> None:
    for generation in range(1, 1200):
        subject.observe("a", chain("xxx"))
        assert subject.raise_generation("a") == generation
    assert subject.blocks_of("a") == 0
    subject.clear("a")
    assert stored_nodes(subject) <= 1
    assert subject.check() == []


def test_five_hundred_holders_of_one_prefix_are_all_found(subject: Subject) -> None:
    for number in range(500):
        subject.observe(f"e{number}", chain("x" * (1 + number % 50)))
    assert subject.match(chain("x" * 50)).blocks == {f"e{number}": 1 + number % 50 for number in range(500)}
    assert subject.check() == []


def test_forgetting_and_evicting_what_nobody_has_is_harmless(subject: Subject) -> None:
    subject.observe("a", chain("xx"))
    assert subject.forget("b", chain("xx"), 0) == 0
    assert subject.forget("a", chain("xx"), 2) == 0
    assert subject.forget("a", chain("xx"), -1) == 0
    assert subject.forget("a", chain("xy"), 1) == 0
    assert subject.evict("b", 0) == 0
    subject.clear("b")
    assert subject.match(chain("xx")).blocks == {"a": 2}


def test_clearing_twice_or_nothing_leaves_nothing_to_reclaim() -> None:
    index = RadixIndex[str]()
    index.observe("a", chain("x"))
    index.evict("a", 0)
    index.clear("a")
    index.clear("a")
    assert index.check() == []
    assert list(index.holders()) == []


@pytest.mark.parametrize(
    "damage", ["name", "holder", "child", "orphan", "parent", "start", "subset", "count", "order", "seat"]
)
def test_the_audit_sees_every_kind_of_damage(damage: str) -> None:
    index = RadixIndex[str]()
    for holder, prompt in (("a", "xxyy"), ("b", "xxzz"), ("a", "xx")):
        index.observe(holder, chain(prompt))
    assert index.check() == []
    stem, leaf = index._nodes[chain("x").hashes], index._nodes[chain("xxy").hashes[16:]]
    seat = index._seats["a"]
    match damage:
        case "name":
            leaf.edge = leaf.edge[8:]
        case "holder":
            leaf.holds.clear()
        case "child":
            leaf.parent = None
        case "orphan":
            stem.children.remove(leaf)
            leaf.parent = None
        case "parent":
            stem.children.remove(leaf)
        case "start":
            leaf.start += 1
        case "subset":
            del stem.holds[seat]
        case "count":
            seat.blocks += 1
        case "order":
            seat.touch(leaf.holds[seat])
        case "seat":
            del index._seats["a"]
    assert index.check() != []


def test_the_loads_of_an_index_in_process_are_unknown_not_zero() -> None:
    index = RadixIndex[str]()
    index.observe("a", chain("x"))
    assert index.match(chain("x")).loads == {}
    assert Load(1, 2, 3) + Load(4, 5, 6) == Load(5, 7, 9)
