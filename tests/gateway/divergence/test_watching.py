"""What the traffic of a tenant shows: in what its prompts part, why, and what that costs."""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from gateway.divergence import Change, Sign, Watch
from gateway.divergence.earlier import MOST_BYTES
from gateway.divergence.profiles import MOST_OF_TENANT, MOST_PIECES_KEPT, MOST_PLACES, MOST_PROFILES, MOST_SKETCHES
from gateway.types import InferenceRequest, Plan, TokenSource
from prefix_index import HASH_BYTES, Chain
from prefix_index.layout import Cause
from prefix_index.prompt import PromptView
from tests.gateway.divergence.asked import BLOCK, CHARS, plan, request

RULES = "\n".join(f"Rule {number}: what is said there holds for case {number} only." for number in range(60))
RULES_TOKENS = len(RULES) // CHARS


class Traffic:
    """Requests that a watch sees, one after the other, each answered as an engine would whose cache holds all."""

    def __init__(self) -> None:
        self.watch = Watch(wall=lambda: 1_000.0, monotonic=lambda: 0.0)

    def send(self, asked: InferenceRequest, root: bytes = b"root", text: str | None = None) -> None:
        planned = plan(asked, root, text)
        looked = self.watch.look(asked, planned)
        assert looked is not None
        self.watch.note(asked, planned, looked, "e@1", looked.shared_blocks * BLOCK)

    @property
    def faults(self) -> list[Sign]:
        """What costs anything."""
        return [sign for sign in self.watch.signs() if sign.lost_tokens]


@pytest.fixture
def traffic() -> Traffic:
    return Traffic()


def tool(name: str, about: str = "What it does.") -> object:
    return {"type": "function", "function": {"name": name, "description": about * 20, "parameters": {}}}


TOOLS = [tool(f"tool_{number}") for number in range(12)]


def dated(minute: int) -> str:
    return f"You are a clerk.\nCurrent time: 2026-11-30 12:{minute:02}:07\n{RULES}"


def about(tokens: int, share: float = 0.1) -> object:
    return pytest.approx(tokens, rel=share)


def test_a_time_in_the_system_prompt_is_named_with_the_rules_behind_it(traffic: Traffic) -> None:
    for minute in range(10):
        traffic.send(request(dated(minute), f"How is case {minute} to be handled, please?"))
    [sign] = traffic.faults
    assert (sign.change, sign.segment, sign.requests, sign.of) == (Change.SYSTEM, "system", 9, 9)
    assert max(sign.causes, key=lambda cause: sign.causes[cause]) is Cause.TIME
    assert sign.lost_tokens == about(9 * RULES_TOKENS)
    assert sign.offsets == (17, 17)
    assert sign.tokens[1] <= 2 * BLOCK
    assert sign.variants == 10


def test_a_stable_prompt_shows_nothing_however_its_questions_differ(traffic: Traffic) -> None:
    for number in range(20):
        traffic.send(request(RULES, f"{number}: how is case {number} to be handled?", tools=TOOLS))
        traffic.send(
            request(RULES, f"{number}: how is case {number} to be handled?", "So.", "And then?" * 9, tools=TOOLS)
        )
    assert traffic.faults == []


def test_the_lost_tokens_of_requests_that_are_not_looked_at_closely_are_those_of_the_others(traffic: Traffic) -> None:
    for number in range(200):
        traffic.send(request(dated(number % 60) + f"\nNumber {number}.", f"How is case {number} to be handled?"))
    [sign] = traffic.faults
    assert sign.lost_tokens == about(199 * RULES_TOKENS)
    assert sum(sign.causes.values()) < sign.requests / 2


def test_what_follows_an_early_change_counts_with_it_tools_and_conversation(traffic: Traffic) -> None:
    turns = ["Where is the first?", "On the left, behind the door. " * 20, "And the second?", "There too. " * 20]
    for minute in range(6):
        traffic.send(request(dated(minute), *turns, f"And {minute}?", tools=TOOLS))
    [sign] = traffic.faults
    whole = plan(request(dated(0), *turns, "And 0?", tools=TOOLS)).chain.prompt_tokens
    assert sign.lost_tokens == about(5 * (whole - 20))


def test_shuffled_tools_are_named(traffic: Traffic) -> None:
    rng = random.Random(7)
    for number in range(12):
        shuffled = rng.sample(TOOLS, len(TOOLS))
        traffic.send(request(RULES, "The same question in every call. " * 30, f"{number}", tools=shuffled))
    [sign] = traffic.faults
    assert (sign.change, sign.segment) == (Change.TOOL_ORDER, "tools")
    assert sign.requests >= 10
    assert sign.lost_tokens > 10 * 200


def test_a_tool_that_is_described_anew_in_each_call_is_named(traffic: Traffic) -> None:
    for number in range(48):
        changed = [*TOOLS[:5], tool("tool_5", f"As of {number} o'clock. "), *TOOLS[6:]]
        traffic.send(request(RULES, "The same question in every call. " * 30, tools=changed))
    [sign] = traffic.faults
    assert (sign.change, sign.segment, sign.requests) == (Change.TOOL_SCHEMA, "tools", 47)
    each = (len("The same question in every call. " * 30) + len(f"{TOOLS[0]}") * 6) // CHARS  # six stand behind it
    assert each < sign.lost_tokens / sign.requests < 2 * each


def test_a_conversation_that_loses_its_oldest_turns_is_named(traffic: Traffic) -> None:
    said = [f"This is turn {number} of a long conversation. " * 8 for number in range(40)]
    for first in range(0, 20, 2):
        traffic.send(request(RULES, *said[first : first + 11]))
    [sign] = traffic.faults
    assert (sign.change, sign.segment, sign.requests) == (Change.WINDOW, "history", 9)
    assert sign.lost_tokens == about(9 * 9 * len(said[10]) // CHARS)


def test_a_conversation_whose_midst_is_rewritten_is_named(traffic: Traffic) -> None:
    said = [f"This is turn {number} of a long conversation. " * 8 for number in range(9)]
    for number in range(7):
        traffic.send(request(RULES, *said[:3], f"(left out, {number})", *said[4:], f"{number}"))
    [sign] = traffic.faults
    assert (sign.change, sign.segment, sign.requests) == (Change.HISTORY, "history", 6)


def test_a_template_that_writes_the_date_is_named_although_every_request_is_the_same(traffic: Traffic) -> None:
    asked = request(RULES, "The same question.")
    for day in range(6):
        traffic.send(asked, text=f"Today Date: {day} Nov 2026{RULES}The same question.")
    [sign] = traffic.faults
    assert (sign.change, sign.segment, sign.requests) == (Change.TEMPLATE, "template", 5)


def test_another_salt_is_named_and_another_model_for_a_conversation_under_way(traffic: Traffic) -> None:
    for number in range(4):
        traffic.send(request(RULES, "The same question.", f"{number}"), root=b"salt %d" % number)
    [sign] = traffic.faults
    assert (sign.change, sign.segment, sign.requests) == (Change.SALT, "salt", 3)
    other = Traffic()
    other.send(request(RULES, "Where?", model="a"), root=b"a")
    other.send(request(RULES, "Where?", "There.", "And then?", model="b"), root=b"b")
    [sign] = other.faults
    assert (sign.change, sign.segment, sign.name.model) == (Change.MODEL, "model", "b")
    same = Traffic()
    same.send(request(RULES, "Where?", model="a"))
    same.send(request(RULES, "Where?", "There.", "And then?", model="alias of a"))
    assert same.faults == []


def test_instructions_behind_what_a_call_is_about_are_named_in_a_message_and_in_a_plain_prompt(
    traffic: Traffic,
) -> None:
    for number in range(6):
        traffic.send(request("", f"Text {number}: {'word ' * number}of its own.\n{RULES}"))
    [sign] = traffic.faults
    assert (sign.change, sign.segment) == (Change.MESSAGE, "message 1 user")
    assert sign.lost_tokens == about(5 * RULES_TOKENS)
    plain = Traffic()
    for number in range(6):
        text = f"Text {number}: {'word ' * number}of its own.\n{RULES}"
        plain.send(request(prompt=PromptView(prompt=text)), text=text)
    [sign] = plain.faults
    assert (sign.change, sign.segment) == (Change.PROMPT, "prompt")


def test_agents_that_take_turns_are_not_taken_for_one_that_changes(traffic: Traffic) -> None:
    """Their prompts have nothing in common; each is still where it was."""
    agents = ["\n".join(f"{name} knows {name}-rule {line} well." for line in range(50)) for name in ("Ada", "Bo", "Cy")]
    for number in range(30):
        traffic.send(request(agents[number % 3], f"{number}: how is case {number} to be handled?"))
    assert traffic.faults == []


def test_a_closer_prompt_than_ours_that_the_engine_has_is_no_loss(traffic: Traffic) -> None:
    """It reports more than the closest that is remembered: somebody else of the group sent the like."""
    for minute in range(8):
        asked = request(dated(minute), "How?")
        planned = plan(asked)
        looked = traffic.watch.look(asked, planned)
        assert looked is not None
        traffic.watch.note(asked, planned, looked, "e@1", planned.chain.prompt_tokens - 1)
    assert traffic.faults == []


def flood(watch: Watch, make: Callable[[int], InferenceRequest], count: int) -> None:
    for number in range(count):
        asked = make(number)
        chain = Chain(number.to_bytes(HASH_BYTES), BLOCK, 2 * BLOCK)  # made by hand: there are many
        planned = Plan(chain, TokenSource.LOCAL, root=b"root") if count > 10_000 else plan(asked)
        looked = watch.look(asked, planned)
        assert looked is not None
        watch.note(asked, planned, looked, "e@1", 0)


def hostile(number: int) -> InferenceRequest:
    """Each of a tenant, a prompt and a set of tools of its own; every fifth of one tenant."""
    tenant = "flooder" if number % 5 == 0 else f"tenant {number}"
    system = f"{number} begins.\nThen the same line again.\nAnd one more, which is the same."
    return request(system, f"{number} asks something", tenant=tenant, tools=[{"name": f"{number}"}])


def test_a_hundred_thousand_hostile_tenants_and_prompts_find_a_bound() -> None:
    watch = Watch()
    flood(watch, hostile, 100_000)
    profiles = watch._profiles
    assert len(profiles) == sum(map(len, profiles._tenants.values())) <= MOST_PROFILES
    assert all(len(of_tenant) <= MOST_OF_TENANT for of_tenant in profiles._tenants.values())
    kept = [profile.pieces for of_tenant in profiles._tenants.values() for profile in of_tenant.values()]
    assert sum(kept) == profiles.pieces_kept <= MOST_PIECES_KEPT
    assert watch._recent.kept_bytes <= MOST_BYTES


def test_profiles_with_long_prompts_forget_how_they_read_before_they_fill_the_memory() -> None:
    watch = Watch()
    lines = "\n".join(f"Line {line} of a prompt that is as long as any." for line in range(500))
    flood(watch, lambda number: request(lines, "Hi", tenant=f"{number}"), MOST_PIECES_KEPT // 500 + 50)
    kept = [profile.pieces for of_tenant in watch._profiles._tenants.values() for profile in of_tenant.values()]
    assert MOST_PIECES_KEPT - 501 <= sum(kept) == watch._profiles.pieces_kept <= MOST_PIECES_KEPT
    assert kept[0] == 0


def test_a_flood_of_one_tenant_leaves_what_is_known_of_another() -> None:
    watch = Watch()
    flood(watch, lambda minute: request(dated(minute), f"Case {minute}?", tenant="quiet"), 8)
    flood(watch, lambda number: request(f"{number} " * 30, "Hi", tools=[{"name": f"{number}"}], tenant="loud"), 20_000)
    assert [sign.requests for sign in watch.signs() if sign.name.tenant == "quiet" and sign.lost_tokens] == [7]


def test_the_places_and_sketches_of_a_profile_have_a_bound() -> None:
    watch = Watch()
    rng = random.Random(3)
    texts = ["\n".join(f"{rng.random()} is line {line}, {rng.random()}" for line in range(20)) for _ in range(60)]
    said = [f"This is turn {number} of a long conversation. " * 8 for number in range(30)]

    def make(number: int) -> InferenceRequest:
        turns = [*said[: number % 29], f"{rng.random()}" * 9]
        return request(texts[number % 60] if number % 2 else RULES, *turns)

    flood(watch, make, 2_000)
    [profile] = [profile for of_tenant in watch._profiles._tenants.values() for profile in of_tenant.values()]
    assert len(profile.places) <= MOST_PLACES
    assert all(len(kept) <= MOST_SKETCHES for kept in profile.sketches.values())


def test_a_system_prompt_with_a_change_that_no_form_explains_is_named_without_a_cause(traffic: Traffic) -> None:
    for name in ("amber", "birch", "cedar", "dune", "elm", "fern"):
        traffic.send(request(f"You are a clerk.\nYou work in the {name} room.\n{RULES}", f"What is in {name}?"))
    [sign] = traffic.faults
    assert (sign.change, set(sign.causes)) == (Change.SYSTEM, {Cause.UNKNOWN})


def test_of_a_prompt_that_is_too_long_to_be_read_the_tokens_are_compared(traffic: Traffic) -> None:
    said = [replace(request(dated(minute), f"Case {minute}?"), body=bytes(2 << 20)) for minute in range(3)]
    traffic.send(said[0])
    looked = traffic.watch.look(said[1], plan(said[1]))
    assert looked is not None
    assert looked.parting is not None
    assert (looked.parting.token, looked.parting.change, looked.parting.lost_tokens) == (0, Change.GROWN, 0)
    traffic.send(said[1])
    traffic.send(request(dated(2), "Case 2?"))
    traffic.send(said[1])
    assert traffic.faults == []
