"""Which arm a request goes to: exact shares, keys that stay, and nothing that others lose."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.model_routes import Arm, ModelRoute, Sticky, arm_at, arm_of, key_of
from gateway.model_routes.choice import BEGINNING_CHARS, POINT_BITS, point_of
from gateway.types import InferenceRequest, KeyId, Labels, RequestId, Route, Tenant, TenantId
from prefix_index.prompt import PromptView

GOLDEN_POINTS = [12094, 38456, 54262]
GOLDEN_ARMS = [f"a{digit}" for digit in "001001000100"]

weights = st.lists(st.integers(0, 1000), min_size=1, max_size=6).filter(any)


def arms_of(weights: list[int]) -> tuple[Arm, ...]:
    return tuple(Arm(f"a{at}", f"m{at}", weight) for at, weight in enumerate(weights))


def asked(
    prompt: PromptView, *, id_: str = "r1", group: str = "g", tenant: str = "t", job: str | None = None
) -> InferenceRequest:
    return InferenceRequest(
        id=RequestId(id_),
        tenant=Tenant(TenantId(tenant), KeyId("k"), group, ""),
        route=Route.CHAT,
        path=Route.CHAT.value,
        model="fast",
        stream=False,
        client_wants_usage=False,
        max_output_tokens=None,
        prompt=prompt,
        body=b"{}",
        headers=(),
        started_s=0.0,
        opened_at=datetime(2026, 11, 1, tzinfo=UTC),
        labels=Labels(job_id=job),
    )


def chat(*said: tuple[str, object]) -> PromptView:
    return PromptView(messages=[{"role": role, "content": content} for role, content in said])


@given(weights, st.integers(1, 50))
def test_of_points_that_are_spread_evenly_each_arm_gets_exactly_its_share(weights: list[int], rounds: int) -> None:
    arms, total = arms_of(weights), sum(weights)
    points = total * rounds
    got = dict.fromkeys((arm.name for arm in arms), 0)
    for at in range(points) if points <= 5000 else range(0):
        got[arm_at(((at << POINT_BITS) + (1 << POINT_BITS) // 2) // points, arms).name] += 1
    if points <= 5000:
        assert got == {arm.name: arm.weight * rounds for arm in arms}


@given(weights)
def test_the_points_of_an_arm_are_one_run_as_long_as_its_share(weights: list[int]) -> None:
    arms, total, below = arms_of(weights), sum(weights), 0
    for arm in arms:
        if arm.weight:
            first = -(-(below << POINT_BITS) // total)
            last = -(-((below + arm.weight) << POINT_BITS) // total) - 1
            assert arm_at(first, arms) is arm_at(last, arms) is arm
            assert abs((last - first + 1) - (arm.weight << POINT_BITS) // total) <= 1
        below += arm.weight


@given(st.integers(0, 100), st.integers(0, 100), st.integers(0, 2**POINT_BITS - 1))
def test_where_weight_is_moved_to_the_last_arm_only_keys_that_it_gains_move(one: int, other: int, point: int) -> None:
    less, more = sorted((one, other))
    before = arm_at(point, arms_of([100 - less, less]))
    after = arm_at(point, arms_of([100 - more, more]))
    assert before.name == after.name or (before.name, after.name) == ("a0", "a1")


@given(weights, st.sets(st.integers(0, 5)), st.binary(max_size=8))
def test_keys_of_an_arm_that_can_be_used_stay_whatever_becomes_of_the_others(
    weights: list[int], out: set[int], key: bytes
) -> None:
    route = ModelRoute("fast", arms_of(weights))
    unusable = {f"a{at}" for at in out}
    before, after = arm_of(route, key), arm_of(route, key, unusable)
    if before.name not in unusable:
        assert after is before
    elif any(arm.weight for arm in route.arms if arm.name not in unusable):
        assert after.name not in unusable
        assert after.weight
    else:
        assert after is before
    assert arm_of(route, key, unusable) is after


def test_which_arm_a_key_gets_is_the_same_for_every_gateway_and_version() -> None:
    route = ModelRoute("fast", arms_of([1, 1]))
    assert [point_of(route, key) >> 48 for key in (b"", b"t", b"conversation 7")] == GOLDEN_POINTS
    assert [arm_of(route, b"%d" % at).name for at in range(12)] == GOLDEN_ARMS


def test_ten_thousand_keys_are_shared_as_the_weights_say() -> None:
    route = ModelRoute("fast", arms_of([90, 10]))
    tenth = sum(arm_of(route, b"%d" % at).name == "a1" for at in range(10_000))
    assert tenth == pytest.approx(1000, abs=120)  # four standard deviations


def test_all_turns_of_a_conversation_have_one_key_and_other_conversations_others() -> None:
    first = chat(("system", "Rules"), ("user", "Hello"))
    second = chat(("system", "Rules"), ("user", "Hello"), ("assistant", "Hi"), ("user", "More"))
    other = chat(("system", "Rules"), ("user", "Good morning"))
    keys = [key_of(asked(prompt), Sticky.CONVERSATION) for prompt in (first, second, other)]
    assert keys[0] == keys[1] != keys[2]


def test_a_job_keeps_its_calls_together_within_its_tenant() -> None:
    prompts = [chat(("user", text)) for text in ("a", "b")]
    one, two = (key_of(asked(prompt, job="run-7"), Sticky.CONVERSATION) for prompt in prompts)
    assert one == two != key_of(asked(prompts[0], job="run-7", tenant="u"), Sticky.CONVERSATION)
    assert key_of(asked(prompts[0], job="run-7"), Sticky.PREFIX) != key_of(asked(prompts[1]), Sticky.PREFIX)


def test_prompts_that_begin_alike_have_one_key_within_their_share_group() -> None:
    rules = "x" * BEGINNING_CHARS
    one, two = chat(("system", rules + "1"), ("user", "a")), chat(("system", rules + "2"), ("user", "b"))
    assert key_of(asked(one), Sticky.PREFIX) == key_of(asked(two), Sticky.PREFIX)
    assert key_of(asked(one), Sticky.PREFIX) != key_of(asked(one, group="h"), Sticky.PREFIX)
    texts = [PromptView(prompt=rules + end) for end in "12"]
    assert key_of(asked(texts[0]), Sticky.PREFIX) == key_of(asked(texts[1]), Sticky.PREFIX)


def test_a_tenant_is_one_key_and_single_requests_are_their_own() -> None:
    prompts = [chat(("user", text)) for text in ("a", "b")]
    assert len({key_of(asked(prompt), Sticky.TENANT) for prompt in prompts}) == 1
    assert len({key_of(asked(prompts[0], id_=id_), Sticky.REQUEST) for id_ in ("r1", "r2")}) == 2


@pytest.mark.parametrize(
    ("prompt", "same"),
    [
        (PromptView(prompt=[1, 2, 3]), True),
        (PromptView(prompt=""), False),
        (PromptView(), False),
        (chat(("user", [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {}}])), True),
        (chat(("user", None)), True),
        (chat(("user", "\ud800")), True),
    ],
)
def test_whatever_a_prompt_is_it_has_a_key(prompt: PromptView, same: bool) -> None:
    for sticky in (Sticky.CONVERSATION, Sticky.PREFIX):
        one, two = (key_of(asked(prompt, id_=id_), sticky) for id_ in ("r1", "r2"))
        assert (one == two) is same


def picture(end: str) -> dict[str, object]:
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{'iVBORw0KGgo' * 100}{end}"}}


def test_the_same_question_about_two_pictures_is_two_conversations() -> None:
    """A fleet that only sees pictures would else send all of them to one arm."""
    one, other = (chat(("user", [{"type": "text", "text": "What is this?"}, picture(end)])) for end in "AB")
    more = chat(("user", [{"type": "text", "text": "What is this?"}, picture("A")]), ("assistant", "A cat"))
    only = [chat(("user", [part])) for part in (picture("A"), picture("B"), {"type": "input_audio", "input_audio": {}})]
    keys = [key_of(asked(prompt), Sticky.CONVERSATION) for prompt in (one, other, *only)]
    assert len({*keys}) == len(keys)
    assert key_of(asked(more), Sticky.CONVERSATION) == keys[0]
    rules = {"type": "text", "text": "x" * BEGINNING_CHARS}
    alike = [key_of(asked(chat(("user", [rules, picture(end)]))), Sticky.PREFIX) for end in "AB"]
    assert alike[0] == alike[1]
