"""What the mirror asks of the index, case by case; that it is right in all cases is the model's to show."""

import pytest

from prefix_index.kv_events import Clear, Cleared, Event, Forget, Mirror, Moved, Observe, Removed, Stored, mirror
from prefix_index.kv_events.copies import MAX_PLANES, Copies
from prefix_index.types import TokenIds
from tests.prefix_index.kv_events.letters import CLAIMS, ROOT, Letters, name_of, tokens_of

GPU, HOST, DISK = CLAIMS


def mirror_of(max_blocks: int = 1000, ours: int = 16, *, counted: bool = True) -> Mirror:
    return Mirror(lambda adapter, salt: None if salt == "nobody's" else ROOT, ours, max_blocks, counted=counted)


def applied(subject: Mirror, *events: Event) -> list[str]:
    """The changes in few words: 5 is the length of the chain, from 2 the block that is lost."""
    return [in_words(change) for change in subject.apply(events)]


def in_words(change: Observe | Forget | Clear) -> str:
    match change:
        case Observe(chain, claim):
            return f"observe {len(chain)} {claim}"
        case Forget(chain, from_block, claim):
            return f"forget {len(chain)} from {from_block} {claim}"
        case Clear():
            return "clear"


@pytest.fixture
def engine() -> Letters:
    return Letters(16, 16)


def test_a_prompt_in_several_events_is_told_once(engine: Letters) -> None:
    events = [engine.store("xx", 0), engine.store("xxy", 2), engine.store("xxyxx", 3)]
    assert mirror_of().apply(events) == [Observe(engine.chain("xxyxx"), GPU)]


def test_branches_are_told_by_their_ends(engine: Letters) -> None:
    events = [engine.store("xx", 0), engine.store("xxy", 2), engine.store("xxx", 2), engine.store("y", 0)]
    assert sorted(applied(mirror_of(), *events)) == [
        "observe 1 confirmed",
        "observe 3 confirmed",
        "observe 3 confirmed",
    ]


def test_what_is_known_is_not_told_again(engine: Letters) -> None:
    subject = mirror_of()
    assert applied(subject, engine.store("xxx", 0)) == ["observe 3 confirmed"]
    assert applied(subject, engine.store("xxx", 0)) == []
    assert applied(subject, engine.store("xxxx", 3)) == ["observe 4 confirmed"]


def test_a_lost_block_in_the_middle_is_one_forget_and_its_return_one_observe(engine: Letters) -> None:
    subject = mirror_of()
    subject.apply([engine.store("xxxxx", 0), engine.store("xxyyy", 2)])
    assert applied(subject, engine.remove("xx")) == ["forget 2 from 1 confirmed"]
    assert subject.blocks == 7
    assert sorted(applied(subject, engine.store("xx", 1))) == ["observe 5 confirmed", "observe 5 confirmed"]


def test_tails_that_go_first_are_one_forget_of_the_topmost(engine: Letters) -> None:
    subject = mirror_of()
    subject.apply([engine.store("xxxxx", 0)])
    removals = [engine.remove("x" * length) for length in (5, 4, 3)]
    assert subject.apply(removals) == [Forget(engine.chain("xxx"), 2, GPU)]
    assert subject.blocks == 2


def test_what_comes_and_goes_in_one_batch_costs_nothing(engine: Letters) -> None:
    subject = mirror_of()
    subject.apply([engine.store("xxx", 0)])
    assert applied(subject, engine.remove("xx"), engine.store("xx", 1)) == []
    assert applied(subject, engine.store("yy", 0), engine.remove("yy"), engine.remove("y")) == []
    assert subject.blocks == 3


def test_one_of_two_copies_may_go(engine: Letters) -> None:
    subject = mirror_of()
    subject.apply([engine.store("xx", 0), engine.store("xx", 1)])
    assert applied(subject, engine.remove("xx")) == []
    assert applied(subject, engine.remove("xx")) == ["forget 2 from 1 confirmed"]
    assert applied(subject, engine.remove("xx"), engine.store("xx", 1)) == ["observe 2 confirmed"]


def test_where_each_block_is_kept_once_a_second_word_is_no_second_copy() -> None:
    engine = Letters(16, 16, counted=False)
    subject = mirror_of(counted=False)
    subject.apply([engine.store("xx", 0), engine.store("xx", 0)])
    assert applied(subject, engine.remove("xx")) == ["forget 2 from 1 confirmed"]


def test_more_copies_than_are_counted_are_given_up_early(engine: Letters) -> None:
    subject = mirror_of()
    subject.apply([engine.store("x", 0) for _ in range(300)])
    assert applied(subject, *(engine.remove("x") for _ in range(254))) == []
    assert applied(subject, engine.remove("x")) == ["forget 1 from 0 confirmed"]


def test_a_copy_in_the_hosts_memory_is_told_once_the_gpus_is_gone(engine: Letters) -> None:
    subject = mirror_of()
    subject.apply([engine.store("xxx", 0)])
    assert applied(subject, engine.store("xxx", 0, level=1)) == []
    assert applied(subject, engine.remove("xxx"), engine.remove("xx")) == [
        "forget 2 from 1 confirmed",
        "observe 3 host",
    ]
    assert applied(subject, engine.store("xxx", 2)) == []
    assert applied(subject, engine.store("xx", 1)) == ["observe 3 confirmed"]


def test_a_move_is_a_loss_here_and_a_gain_there(engine: Letters) -> None:
    subject = mirror_of()
    subject.apply([engine.store("xx", 0)])
    assert applied(subject, engine.move("xx", 0, 1)) == ["forget 2 from 1 confirmed", "observe 2 host"]
    assert applied(subject, engine.move("xx", 1, 0)) == ["observe 2 confirmed"]
    assert applied(subject, Moved(name_of("nobody's"), GPU, HOST)) == []


def test_runs_are_nested_and_each_is_told_as_far_as_it_goes(engine: Letters) -> None:
    subject = mirror_of()
    events = [engine.store("xx", 0), engine.store("xxx", 2, level=2), engine.store("xxxx", 3, level=1)]
    assert applied(subject, *events) == ["observe 2 confirmed", "observe 4 disk"]
    assert applied(subject, engine.store("xxx", 2, level=1)) == ["observe 4 host"]
    assert applied(subject, engine.remove("x")) == [
        "forget 1 from 0 confirmed",
        "forget 1 from 0 host",
        "forget 1 from 0 disk",
    ]


def test_a_clear_ends_what_was_before_it_in_its_batch_and_not_what_comes_after(engine: Letters) -> None:
    subject = mirror_of()
    subject.apply([engine.store("xxx", 0)])
    assert applied(subject, engine.store("yyy", 0), Cleared(), engine.store("y", 0), Cleared()) == ["clear"]
    assert applied(subject, engine.store("xy", 0), Cleared(), engine.store("yx", 0)) == ["clear", "observe 2 confirmed"]
    assert subject.blocks == 2


def test_everything_is_told_to_an_index_that_knows_nothing(engine: Letters) -> None:
    subject = mirror_of()
    assert subject.everything() == []
    subject.apply([engine.store("xxx", 0), engine.store("xy", 1, level=1), engine.store("xxxx", 3, level=2)])
    told = sorted(map(in_words, subject.everything()))
    assert told == ["observe 2 host", "observe 3 confirmed", "observe 4 disk"]
    assert applied(subject, engine.remove("xy", 1)) == ["forget 2 from 1 host"]


def test_an_orphan_joins_once_its_parent_is_known(engine: Letters) -> None:
    subject = mirror_of()
    late = engine.store("xxxx", 2)
    assert applied(subject, late) == []
    assert (subject.blocks, subject.orphans) == (2, 2)
    assert applied(subject, engine.store("xx", 1)) == []
    assert subject.orphans == 3
    assert applied(subject, engine.store("x", 0)) == ["observe 4 confirmed"]
    assert (subject.blocks, subject.orphans) == (4, 0)
    assert subject._orphan_tokens == {}


def test_an_orphan_goes_and_leaves_nothing(engine: Letters) -> None:
    subject = mirror_of()
    subject.apply([engine.store("xxxx", 3)])
    assert applied(subject, engine.remove("xxxx")) == []
    assert (subject.blocks, len(subject._forest), subject._orphan_bytes) == (0, 0, 0)


def test_orphans_beyond_the_room_for_their_tokens_join_when_they_are_stored_again(
    engine: Letters, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror, "ORPHAN_TOKEN_BYTES", 64)
    subject = mirror_of()
    subject.apply([engine.store("xxx", 1)])
    assert applied(subject, engine.store("x", 0)) == ["observe 2 confirmed"]
    assert subject.orphans == 1
    assert applied(subject, engine.store("xxx", 2)) == ["observe 3 confirmed"]


def test_blocks_with_media_and_all_below_are_followed_and_not_told(engine: Letters) -> None:
    subject = mirror_of()
    assert applied(subject, engine.store("xmxx", 0)) == ["observe 1 confirmed"]
    assert applied(subject, engine.store("xmxxy", 4)) == []
    assert (subject.blocks, subject.untranslated) == (5, 4)
    assert applied(subject, engine.remove("xmxxy"), engine.remove("xm")) == []
    assert (subject.blocks, subject.untranslated) == (3, 2)


def test_orphans_below_a_medium_are_not_told_either(engine: Letters) -> None:
    subject = mirror_of()
    subject.apply([engine.store("xmxx", 2)])
    assert subject.orphans == 2
    assert applied(subject, engine.store("xm", 0)) == ["observe 1 confirmed"]
    assert (subject.orphans, subject.untranslated) == (0, 3)


def test_a_prompt_whose_root_nobody_has_is_followed_and_not_told() -> None:
    subject = mirror_of()
    event = Stored((1, 2), None, tokens_of("xy", 16), 16, salt="nobody's")
    assert applied(subject, event) == []
    assert (subject.blocks, subject.untranslated) == (2, 2)


def test_the_root_is_asked_for_by_adapter_and_salt() -> None:
    asked: list[tuple[str | None, str | None]] = []

    def root_of(adapter: str | None, salt: str | None) -> bytes:
        asked.append((adapter, salt))
        return ROOT

    subject = Mirror(root_of, 16, 100)
    subject.apply(
        [Stored((1,), None, tokens_of("x", 16), 16, "sql", "s"), Stored((2,), 1, tokens_of("y", 16), 16, "sql")]
    )
    assert asked == [("sql", "s")]


def test_one_name_below_two_parents_stands_for_nothing(engine: Letters) -> None:
    subject = mirror_of()
    subject.apply([engine.store("xxx", 0), engine.store("y", 0)])
    twice = Stored((name_of("xx"),), name_of("y"), tokens_of("x", 16), 16)
    assert applied(subject, twice) == ["forget 2 from 1 confirmed"]
    assert subject.untranslated == 2


def test_a_block_below_itself_harms_nobody() -> None:
    subject = mirror_of()
    tokens = tokens_of("x", 16)
    events = [Stored((1,), 1, tokens, 16), Stored((2,), 3, tokens, 16), Stored((3,), 2, tokens, 16)]
    assert applied(subject, *events, Stored((4, 4), None, TokenIds(tokens * 2), 16)) == []
    assert subject.blocks == 4
    assert applied(subject, *(Removed((name,)) for name in (1, 2, 3, 4, 4))) == []
    assert len(subject._forest) == 0


def test_two_names_of_one_chain_hold_it_until_both_are_gone(engine: Letters) -> None:
    subject = mirror_of()
    assert applied(subject, engine.store("xx", 0), engine.store("xXy", 1)) != []
    assert applied(subject, engine.remove("xx")) == []
    assert applied(subject, engine.remove("xX")) == ["forget 2 from 1 confirmed"]
    subject.apply([engine.store("xx", 1), engine.store("xX", 1)])
    assert applied(subject, engine.remove("xx"), engine.remove("xX")) == ["forget 2 from 1 confirmed"]


def test_what_was_told_of_one_name_is_forgotten_with_the_other(engine: Letters) -> None:
    subject = mirror_of()
    assert applied(subject, engine.store("x", 0, level=1)) == ["observe 1 host"]
    assert applied(subject, engine.remove("x", 1), engine.store("X", 0)) == ["observe 1 confirmed"]
    assert applied(subject, engine.remove("X")) == ["forget 1 from 0 confirmed", "forget 1 from 0 host"]


def test_groups_of_layers_hold_a_block_together(engine: Letters) -> None:
    subject = mirror_of()
    assert applied(subject, engine.store("xx", 0, group=0), engine.store("xx", 0, group=1)) == ["observe 2 confirmed"]
    assert applied(subject, engine.remove("xx", group=1)) == ["forget 2 from 1 confirmed"]
    assert applied(subject, engine.store("xy", 1, group=0)) == []
    assert applied(subject, engine.store("xy", 1, group=1)) == ["observe 2 confirmed"]


def test_layers_that_need_no_whole_prefix_are_no_evidence(engine: Letters) -> None:
    subject = mirror_of()
    windows = Stored((name_of("x"),), None, tokens_of("x", 16), 16, group=1, full=False)
    assert applied(subject, windows) == []
    assert applied(subject, engine.store("x", 0)) == ["observe 1 confirmed"]
    assert applied(subject, Removed((name_of("x"),), group=1)) == []


def test_memories_and_groups_without_end_are_not_believed(engine: Letters) -> None:
    subject = mirror_of()
    subject.apply([engine.store("x", 0, level=2, group=group) for group in range(MAX_PLANES + 10)])
    assert len(subject._copies._planes) == MAX_PLANES
    assert applied(subject, engine.store("y", 0)) == []
    assert subject.blocks == 1


@pytest.mark.parametrize(
    ("size", "told"), [(16, [1, 2, 3, 4]), (32, [2, 4, 6, 8]), (8, [1, 2]), (24, [1, 3, 4, 6]), (1, [])]
)
def test_blocks_of_any_size_make_chains_of_ours(size: int, told: list[int]) -> None:
    engine = Letters(size, 16)
    subject = mirror_of()
    changes = [change for end in range(4) for change in subject.apply([engine.store("xxyx"[: end + 1], end)])]
    chains = [change.chain for change in changes if isinstance(change, Observe)]
    assert [len(chain) for chain in chains] == told
    assert all(engine.chain("xxyx").hashes.startswith(chain.hashes) for chain in chains)
    assert (len(changes), subject.untranslated) == (len(told), 0)


def test_a_block_as_large_as_a_thousand_of_ours_is_not_translated() -> None:
    engine = Letters(1025, 1)
    subject = mirror_of(ours=1)
    assert applied(subject, engine.store("x", 0)) == []
    assert subject.untranslated == 1


def test_beyond_its_room_a_mirror_takes_nothing_in_and_says_so(engine: Letters) -> None:
    subject = mirror_of(max_blocks=4)
    assert applied(subject, engine.store("xxxxxx", 0)) == ["observe 4 confirmed"]
    assert (subject.blocks, subject.refused) == (4, 2)
    assert applied(subject, engine.store("xxxxxxx", 6)) == []
    assert subject.refused == 3
    assert applied(subject, engine.remove("xxxx"), engine.store("y", 0)) == ["forget 4 from 3 confirmed"]
    assert applied(subject, engine.store("y", 0)) == ["observe 1 confirmed"]


def test_beyond_its_room_a_mirror_gives_up_what_is_out_of_reach(engine: Letters) -> None:
    subject = mirror_of(max_blocks=6)
    subject.apply([engine.store("x", 0), engine.store("yyyy", 1), engine.store("m", 0)])
    assert (subject.blocks, subject.orphans, subject.untranslated) == (5, 3, 1)
    assert applied(subject, engine.store("xx", 1)) == []
    assert (subject.blocks, subject.orphans, subject.untranslated, subject.refused) == (1, 0, 0, 1)
    assert applied(subject, engine.store("xx", 1)) == ["observe 2 confirmed"]


def test_memory_for_a_block_is_bounded() -> None:
    engine = Letters(16, 16)
    subject = mirror_of(max_blocks=10**6)
    for prompt in range(100):
        ids = tokens_of("xy" * 100, 16)
        names = tuple(name_of(f"{prompt} {at}") for at in range(200))
        subject.apply([Stored(names, None, TokenIds(prompt.to_bytes(4, "little") + ids[4:]), 16)])
    assert subject.blocks == 20_000
    assert subject.size_bytes / subject.blocks < 80
    assert engine.held == set()


def test_a_group_that_found_no_room_is_known_to_exist(engine: Letters) -> None:
    subject = Mirror(lambda adapter, salt: ROOT, 16, 1)
    assert applied(subject, engine.store("x", 0, group=0)) == ["observe 1 confirmed"]
    assert applied(subject, engine.store("y", 0, group=1)) == ["forget 1 from 0 confirmed"]
    assert subject.refused == 1


def test_one_wide_block_makes_the_others_no_wider(engine: Letters) -> None:
    subject = mirror_of()
    prompt = "xy" * 100
    subject.apply([engine.store(prompt, 0)])
    before = subject.size_bytes
    wide = Letters(16 * 500, 16)
    assert applied(subject, wide.store("z", 0)) == ["observe 500 confirmed"]
    assert subject.size_bytes - before < 2 * 500 * 8
    assert applied(subject, wide.remove("z")) == ["forget 500 from 0 confirmed"]
    assert subject.size_bytes - before < 500 * 8


def test_a_new_memory_takes_nothing_from_the_others_and_a_new_group_does() -> None:
    copies = Copies(counted=True)
    copies.make_room(2)
    assert [copies.meet(*plane) for plane in ((0, None), (1, 3), (0, 1), (0, 1), (1, 3))] == [
        *(False, False, True, False, False),
    ]
