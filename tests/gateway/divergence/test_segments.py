"""What the ledger keeps of a change, and what is read back from it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.divergence.types import MOST_SEGMENT_CHARS, Change, read_segment, segment_text
from prefix_index.layout import Cause

KEPT = [
    (Change.SYSTEM, "system", Cause.TIME, "system time"),
    (Change.SYSTEM, "system", Cause.UNKNOWN, "system"),
    (Change.SYSTEM, "system", None, "system"),
    (Change.TOOL_ORDER, "tools", None, "tools order"),
    (Change.TOOL_SCHEMA, "tools", None, "tools schema"),
    (Change.TOOL_SET, "tools", None, "tools set"),
    (Change.MESSAGE, "message 1 user", Cause.CONTENT, "message 1 user content"),
    (Change.MESSAGE, "message 12 assistant", None, "message 12 assistant"),
    (Change.WINDOW, "history", None, "history cut"),
    (Change.HISTORY, "history", None, "history rewritten"),
    (Change.PROMPT, "prompt", Cause.UUID, "prompt uuid"),
    (Change.TEMPLATE, "template", None, "template"),
    (Change.SALT, "salt", None, "salt"),
]


@pytest.mark.parametrize(("change", "segment", "cause", "text"), KEPT)
def test_a_change_is_kept_in_few_words_and_read_back(
    change: Change, segment: str, cause: Cause | None, text: str
) -> None:
    assert segment_text(change, segment, cause) == text
    assert read_segment(text) == (change, segment, None if cause is Cause.UNKNOWN else cause)


@given(st.sampled_from(Change), st.text(max_size=60), st.none() | st.sampled_from(Cause))
def test_every_change_fits_its_column(change: Change, segment: str, cause: Cause | None) -> None:
    assert len(segment_text(change, segment, cause)) <= MOST_SEGMENT_CHARS


@given(st.text(max_size=40))
def test_whatever_another_gateway_has_kept_can_be_read(text: str) -> None:
    change, segment, _ = read_segment(text)
    assert isinstance(change, Change)
    assert segment in text
