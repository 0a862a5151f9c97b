"""What both radix indexes promise beyond the contract: order of loss, bounds, and nothing left behind."""

import pytest

from prefix_index.radix import MAX_FORGOTTEN_NODES, MAX_NODES, RadixIndex
from prefix_index.types import Chain, Claim, Load
from tests.prefix_index.subjects import InRedis, Subject, chain


def stored_nodes(subject: Subject) -> int:
    if isinstance(subject, InRedis):
        return subject.stored_nodes()
    assert isinstance(subject, RadixIndex)
    return len(subject._tree.nodes)


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


def test_a_chat_that_is_speculated_and_then_confirmed_stays_one_node(subject: Subject) -> None:
    for turn in range(1, 30):
        assert subject.observe("a", chain("x" * turn), Claim.SPECULATIVE) == 1
        assert subject.observe("a", chain("x" * turn), Claim.CONFIRMED) == 1
        assert stored_nodes(subject) == 1
    assert subject.observe("a", chain("x" * 29 + "yy"), Claim.SPECULATIVE) == 2
    found = subject.match(chain("x" * 29 + "yyy"))
    assert (dict(found.blocks), dict(found.speculative)) == ({"a": 29}, {"a": 31})
    assert subject.check() == []


def test_what_was_used_apart_is_not_joined(subject: Subject) -> None:
    for claim in (Claim.CONFIRMED, Claim.HOST):
        subject.observe("a", chain("xxyy"), claim)
    subject.observe("b", chain("xx"))
    subject.clear("b")
    subject.observe("a", chain("zz"), Claim.HOST)
    subject.observe("a", chain("xx"), Claim.HOST)
    subject.observe("a", chain("xxyy"))
    assert stored_nodes(subject) == 3
    assert subject.evict("a", 4, Claim.HOST) == 4
    assert subject.match(chain("xxyy")).host == {"a": 2}
    assert subject.match(chain("zz")).host == {"a": 2}
    assert subject.check() == []


def test_claims_are_runs_of_their_own(subject: Subject) -> None:
    subject.observe("a", chain("xx"))
    subject.observe("a", chain("xxx"), Claim.SPECULATIVE)
    subject.observe("a", chain("xxxx"), Claim.HOST)
    subject.observe("a", chain("xxxxx"), Claim.DISK)
    subject.observe("b", chain("x"), Claim.HOST)
    found = subject.match(chain("xxxxxx"))
    assert (dict(found.blocks), dict(found.speculative)) == ({"a": 2}, {"a": 3})
    assert (dict(found.host), dict(found.disk)) == ({"a": 4, "b": 1}, {"a": 5})
    assert subject.forget("a", chain("xxxxxx"), 3, Claim.HOST) == 1
    assert subject.forget("a", chain("xxxxx"), 2) == 1 + 1 + 3
    assert subject.match(chain("xxxxx")).disk == {"a": 2}
    subject.clear("a", Claim.HOST)
    assert subject.match(chain("xxxxx")).host == {"b": 1}
    assert subject.match(chain("xxxxx")).blocks == {"a": 2}
    subject.clear("a")
    found = subject.match(chain("xxxxx"))
    assert (dict(found.blocks), dict(found.speculative), dict(found.disk)) == ({}, {}, {})
    assert subject.check() == []


def test_a_capacity_bounds_the_memory_that_is_computed_from(subject: Subject) -> None:
    subject.set_capacity("a", 3)
    for claim in Claim:
        subject.observe("a", chain("xxxxx"), claim)
    assert {claim: subject.blocks_of("a", claim) for claim in Claim} == {
        Claim.SPECULATIVE: 3,
        Claim.CONFIRMED: 3,
        Claim.HOST: 5,
        Claim.DISK: 5,
    }


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


def test_a_holder_that_lost_a_stem_on_which_others_have_thousands_keeps_what_it_has_elsewhere(subject: Subject) -> None:
    stem = chain("x")
    for branch in range(MAX_FORGOTTEN_NODES + 1):
        leaf = bytes([branch % 256, branch // 256, *b"leaf.."])
        subject.observe("b", Chain(stem.hashes + leaf, 16, 32))
    for prompt in ("xy", "xzz", "xzq", "yyy"):
        subject.observe("a", chain(prompt))
    assert subject.forget("a", stem, 0) == 5
    assert subject.match(chain("yyy")).blocks == {"a": 3}
    assert subject.blocks_of("b") == MAX_FORGOTTEN_NODES + 2
    assert subject.check() == []


def test_what_was_cleared_is_given_back_a_little_at_a_time(subject: Subject) -> None:
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
        subject.evict("b", 0)
        assert subject.check() == []
    assert stored_nodes(subject) == 1


def test_pod_removed_purge_leaves_nothing_that_matches_and_takes_nothing_from_others(subject: Subject) -> None:
    for holder in ("gone", "stays"):
        for claim in Claim:
            subject.observe(holder, chain("xxxx"), claim)
    subject.clear("gone")
    found = subject.match(chain("xxxx"))
    for run in (found.blocks, found.speculative, found.host, found.disk):
        assert run == {"stays": 4}
    assert subject.check() == []


def test_backend_restart_again_and_again_needs_no_more_room(subject: Subject) -> None:
    for _ in range(300):
        subject.observe("a", chain("xxx"))
        subject.clear("a")
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
    assert list(index.holders()) == ["a"]
    index.clear("a")
    index.clear("a")
    assert index.check() == []
    assert list(index.holders()) == []


def test_adapter_churn_of_five_thousand_holders_leaves_nothing_behind() -> None:
    index = RadixIndex[str](clock=Clock())
    for number in range(5000):
        holder = f"http://engine@{number}"
        index.set_capacity(holder, 100)
        for claim in Claim:
            index.observe(holder, chain("xxx" + "yz"[number % 2]), claim)
        index.clear(holder)
    for _ in Claim:
        index.evict("nobody", 0)
    assert stored_nodes(index) == 0
    assert list(index.holders()) == []
    assert len(index._capacity_blocks) < 5000
    assert len(index._short_lived) + len(index._retired) <= 1
    assert index.check() == []


class Clock:
    """Seconds, as a test sets them."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def test_speculation_counts_for_a_while_and_then_is_given_back() -> None:
    clock = Clock()
    index = RadixIndex[str](clock=clock, speculative_s=60)
    index.observe("a", chain("xxxx"), Claim.SPECULATIVE)
    index.observe("b", chain("xxxx"), Claim.SPECULATIVE)
    index.observe("b", chain("xx"))
    clock.now_s += 59
    index.observe("a", chain("xx"), Claim.SPECULATIVE)
    clock.now_s += 2
    found = index.match(chain("xxxx"))
    assert (dict(found.speculative), dict(found.blocks)) == ({"a": 2}, {"b": 2})
    index.observe("a", chain("xxz"), Claim.SPECULATIVE)
    clock.now_s += 59
    assert index.match(chain("xxxx")).speculative == {"a": 2}
    clock.now_s += 2
    for _ in range(3):
        index.observe("c", chain("w"))
    assert index.blocks_of("b", Claim.SPECULATIVE) == index.blocks_of("a", Claim.SPECULATIVE) == 0
    assert set(index.holders()) == {"b", "c"}
    assert index.check() == []


def test_ages_say_when_the_end_of_a_run_was_last_used_by_anybody() -> None:
    clock = Clock()
    index = RadixIndex[str](clock=clock)
    index.observe("a", chain("xxxx"))
    clock.now_s += 10
    index.observe("b", chain("xx"))
    clock.now_s += 5
    assert index.match(chain("xxxx")).ages_s == {"a": 15, "b": 5}
    assert index.match(chain("xx")).ages_s == {"a": 5, "b": 5}
    assert RadixIndex[str]().match(chain("xx")).ages_s == {}


def test_unique_prompt_rss_is_bounded_by_holds_in_all() -> None:
    index = RadixIndex[str](max_holds=500)
    for number in range(3000):
        index.observe(f"e{number % 7}", Chain(number.to_bytes(8, "big") * 3, 16, 50))
        assert index._tree.holds <= 501
    assert index.match(Chain((2999).to_bytes(8, "big"), 16, 16)).blocks == {"e3": 1}
    assert index.check() == []


@pytest.mark.parametrize(
    "damage", ["name", "holder", "child", "orphan", "parent", "start", "subset", "count", "order", "seat", "holds"]
)
def test_the_audit_sees_every_kind_of_damage(damage: str) -> None:
    index = RadixIndex[str]()
    for holder, prompt in (("a", "xxyy"), ("b", "xxzz"), ("a", "xx")):
        index.observe(holder, chain(prompt))
    assert index.check() == []
    stem, leaf = index._tree.nodes[chain("x").hashes], index._tree.nodes[chain("xxy").hashes[16:]]
    seat = index._seats["a", Claim.CONFIRMED]
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
            seat.touch(leaf.holds[seat], 0.0)
        case "seat":
            del index._seats["a", Claim.CONFIRMED]
        case "holds":
            index._tree.holds += 1
    assert index.check() != []


def test_the_loads_of_an_index_in_process_are_unknown_not_zero() -> None:
    index = RadixIndex[str]()
    index.observe("a", chain("x"))
    assert index.match(chain("x")).loads == {}
    assert Load(1, 2, 3) + Load(4, 5, 6) == Load(5, 7, 9)
