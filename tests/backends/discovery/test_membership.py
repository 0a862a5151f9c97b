"""Who belongs to the fleet, by what sources say: against a naive model, and by example."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from backends.discovery.membership import Action, ComeBack, Hold, Join, Leave, Membership, Move, Purge, merged
from backends.discovery.names import MOST_CHARS, name_of, name_of_url, normal_url
from backends.discovery.types import Found

ORDER = ("config", "admin", "file", "dns")


def idle(_: str) -> bool:
    return False


def membership(grace_s: float = 60, most: int = 100) -> Membership:
    return Membership(ORDER, grace_s=grace_s, most=most)


def kinds(actions: Sequence[Action]) -> list[tuple[str, str]]:
    return [
        (type(one).__name__, one.wanted.id if isinstance(one, Join | ComeBack | Move) else one.id) for one in actions
    ]


def test_one_address_is_one_endpoint_whoever_lists_it_and_however_it_is_written() -> None:
    fleet = membership()
    fleet.take("dns", [Found("http://A:80/"), Found("http://b:8000")])
    fleet.take("file", [Found("http://a", "one")])
    assert kinds(fleet.plan(0, idle)) == [("Join", "one"), ("Join", "b-8000")]
    wanted = fleet.member("one")
    assert wanted is not None
    assert wanted.sources == ("file", "dns")
    fleet.take("dns", [Found("http://b:8000")])
    assert fleet.plan(1, idle) == []  # the file lists it still


def test_ids_do_not_depend_on_who_spoke_first() -> None:
    late, early = membership(), membership()
    late.take("dns", [Found("http://a:1")])
    late.plan(0, idle)
    late.take("file", [Found("http://a:1", "one")])
    early.take("file", [Found("http://a:1", "one")])
    early.take("dns", [Found("http://a:1")])
    assert kinds(late.plan(1, idle)) == [("Leave", "a-1"), ("Join", "one")]
    assert kinds(early.plan(1, idle)) == [("Join", "one")]


def test_two_addresses_of_one_id_are_two_endpoints() -> None:
    fleet = membership()
    fleet.take("config", [Found("http://a:1", "one")])
    fleet.take("file", [Found("http://a:2", "one")])
    (_, first), (_, second) = kinds(fleet.plan(0, idle))
    assert first == "one"
    assert second.startswith("one-")


def test_who_is_listed_no_more_leaves_at_once_and_is_purged_after_the_grace() -> None:
    fleet = membership()
    fleet.take("file", [Found("http://a:1", "a")])
    fleet.plan(0, idle)
    fleet.take("file", [])
    assert fleet.plan(10, idle) == [Leave("a")]
    assert fleet.has_left("a")
    assert fleet.plan(69, idle) == []
    assert fleet.plan(70, lambda _: True) == []  # a stream is under way
    assert fleet.plan(71, idle) == [Purge("a")]
    assert fleet.member("a") is None


def test_who_comes_back_within_the_grace_is_the_one_that_it_was() -> None:
    fleet = membership()
    fleet.take("file", [Found("http://a:1", "a")])
    fleet.plan(0, idle)
    fleet.take("file", [])
    fleet.plan(10, idle)
    fleet.take("file", [Found("http://a:1", "a")])
    assert kinds(fleet.plan(20, idle)) == [("ComeBack", "a")]
    assert fleet.plan(100, idle) == []


def test_an_id_at_another_address_moves() -> None:
    fleet = membership()
    fleet.take("file", [Found("http://a:1", "a")])
    fleet.plan(0, idle)
    fleet.take("file", [Found("http://a:2", "a")])
    assert kinds(fleet.plan(1, idle)) == [("Move", "a")]
    fleet.take("file", [Found("http://a:2", "a", settings={"api_key_env": "K"})])
    assert kinds(fleet.plan(2, idle)) == [("Move", "a")]


def test_who_drains_is_held_and_a_stranger_that_drains_is_not_taken_in() -> None:
    fleet = membership()
    fleet.take("config", [Found("http://a:1", "a")])
    fleet.take("dns", [Found("http://b:1", "b", draining=True)])
    assert kinds(fleet.plan(0, idle)) == [("Join", "a")]
    fleet.take("file", [Found("http://a:1", draining=True)])
    assert fleet.plan(1, idle) == [Hold("a", True)]
    fleet.take("file", [])
    assert fleet.plan(2, idle) == [Hold("a", False)]


def test_those_who_are_there_stay_where_there_are_too_many() -> None:
    fleet = membership(most=2)
    fleet.take("file", [Found("http://b:1", "b"), Found("http://c:1", "c")])
    fleet.plan(0, idle)
    fleet.take("config", [Found("http://a:1", "a")])
    assert fleet.plan(1, idle) == []
    assert fleet.refused == 1


def test_a_listing_that_changes_whole_again_and_again_does_not_fill_the_memory() -> None:
    fleet = membership(grace_s=1e9, most=3)
    for turn in range(50):
        fleet.take("dns", [Found(f"http://10.0.{turn}.{n}:1") for n in range(3)])
        fleet.plan(turn, idle)
        assert len(fleet.members()) <= 3 * 3
    assert not fleet.has_left("10.0.49.0-1")


URLS = st.sampled_from([f"http://h{n}:1" for n in range(5)])
LISTING = st.lists(st.builds(Found, URLS, st.sampled_from([None, "x", "y"]), st.booleans()), max_size=6)


@given(st.lists(st.tuples(st.sampled_from(ORDER[1:]), LISTING, st.floats(0, 40)), max_size=20))
def test_what_is_planned_and_done_leaves_those_that_are_wanted(turns: list[tuple[str, list[Found], float]]) -> None:
    fleet, now_s = membership(grace_s=30), 0.0
    said: dict[str, list[Found]] = {source: [] for source in ORDER}
    here: dict[str, str] = {}
    left: dict[str, float] = {}
    for source, listing, wait_s in turns:
        now_s += wait_s
        said[source] = listing
        fleet.take(source, listing)
        for action in fleet.plan(now_s, idle):
            match action:
                case Join(wanted):
                    assert wanted.id not in here
                    here[wanted.id] = normal_url(wanted.found.url)
                case ComeBack(wanted):
                    del left[wanted.id]
                case Move(wanted):
                    here[wanted.id] = normal_url(wanted.found.url)
                case Leave(endpoint_id):
                    left[endpoint_id] = now_s
                case Purge(endpoint_id):
                    assert now_s - left.pop(endpoint_id) >= 30
                    del here[endpoint_id]
                case Hold(endpoint_id):
                    assert endpoint_id in here
        wanted_now, _ = merged(said, here, 100)
        assert here.keys() - left.keys() == wanted_now.keys()
        assert {one: here[one] for one in wanted_now} == {
            one: normal_url(wanted.found.url) for one, wanted in wanted_now.items()
        }


@given(st.text(), st.text())
def test_names_are_short_fit_for_labels_and_differ_where_texts_do(one: str, other: str) -> None:
    for name in (name_of(one), name_of_url(f"http://{one}")):
        assert 0 < len(name) <= MOST_CHARS
        assert name[0].isalnum()
        assert all(letter.isascii() and (letter.isalnum() or letter in "._-") for letter in name)
    assert (name_of(one) == name_of(other)) == (one == other)


def test_addresses_are_compared_as_they_are_reached() -> None:
    assert normal_url("https://Host.example.") == normal_url("https://host.example:443/")
    assert normal_url("http://[::1]:8000/base/") == "http://[::1]:8000/base"
    assert normal_url("http://a:8000") != normal_url("http://a:8001")
    assert normal_url("http://a:nonsense") == "http://a:nonsense"
