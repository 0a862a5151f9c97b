"""One bill of several attempts, against what each of them is known to have done."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from billing import Usage, UsageFlag, UsageMerger
from billing.usage import checked
from gateway.continuing import Carried, Said
from gateway.relay import StreamTee
from gateway.stream_format import ChatFormat
from tests.billing.samples import attempt, settled

COUNT = st.none() | st.integers(0, 100_000)


def carried(**more: Any) -> Carried:
    given: dict[str, Any] = {
        "number": 1,
        "request": None,
        "said": Said(text="The books"),
        "tee": StreamTee(ChatFormat(), keep_usage=True),
        "prompt_tokens": 1000,
        "cached_tokens": 960,
        "relayed_tokens": 200,
        "translator": None,
        "head_sent": True,
    }
    return Carried(**{**given, **more})


@given(COUNT, COUNT, st.integers(0, 100_000), COUNT, COUNT, COUNT, st.booleans())
def test_a_tenant_pays_the_first_prompt_and_what_its_client_got(
    prompt: int | None,
    cached: int | None,
    relayed: int,
    later_prompt: int | None,
    later_cached: int | None,
    later_output: int | None,
    began: bool,
) -> None:
    dead, later_tee = StreamTee(ChatFormat(), keep_usage=True), StreamTee(ChatFormat(), keep_usage=True)
    before = carried(tee=dead, prompt_tokens=prompt, cached_tokens=cached, relayed_tokens=relayed)
    usage = Usage(later_prompt, later_cached, later_output)
    last = replace(settled(attempts=(attempt(), attempt(ordinal=1))), usage=usage)
    bill = before.settled(last, later_tee if began else dead)
    assert bill.usage is not None
    assert bill.usage.output_tokens == relayed + (later_output or 0 if began else 0)
    if prompt is not None:
        assert bill.usage.prompt_tokens == prompt, "never the prompt that was computed once more"
    elif began and later_prompt is not None:
        assert bill.usage.prompt_tokens == max(later_prompt - relayed, 0)
    else:
        assert bill.usage.prompt_tokens is None
    assert checked(bill.usage)[0] == bill.usage, "cached tokens fit into the prompt"
    assert (UsageFlag.INCOMPLETE in bill.flags) == (began and later_output is None)
    assert UsageFlag.ESTIMATED in bill.flags
    assert bill.continuations == 1
    told = bill.attempts[-1]
    whose = (later_prompt, later_cached, later_output) if began else (None, None, None)
    assert (told.prompt_tokens, told.cached_tokens, told.output_tokens) == whose


@given(COUNT, COUNT, COUNT)
def test_where_the_client_had_got_no_text_the_second_report_is_the_bill(
    prompt: int | None, cached: int | None, output: int | None
) -> None:
    usage = Usage(prompt, cached, output)
    last = replace(settled(attempts=(attempt(),)), usage=usage)
    bill = carried(said=Said(role=True)).settled(last, None)
    assert (bill.usage, bill.flags, bill.continuations) == (usage, last.flags, 1)


def test_the_client_is_told_what_its_tenant_pays() -> None:
    told = carried().composed_json({"prompt_tokens": 1200, "completion_tokens": 100, "total_tokens": 1300, "x": 1})
    assert told == {
        "prompt_tokens": 1000,
        "completion_tokens": 300,
        "total_tokens": 1300,
        "prompt_tokens_details": {"cached_tokens": 960},
        "x": 1,
    }
    assert carried(said=Said()).composed_json({"prompt_tokens": 7}) == {"prompt_tokens": 7}


@pytest.mark.parametrize("lie", [-3, "x", 10**19, 1.5, True, None])
def test_a_client_is_told_what_its_tenant_pays_whatever_an_engine_says(lie: object) -> None:
    told = {"prompt_tokens": 1200, "completion_tokens": lie}
    report = UsageMerger()
    report.add({**told})
    last = replace(settled(attempts=(attempt(),)), usage=report.result().usage)
    billed = carried().settled(last, None).usage
    assert billed is not None
    assert billed.output_tokens is not None
    assert carried().composed_json(told)["completion_tokens"] == billed.output_tokens >= 200
