"""A slot is judged by its name, or by the expression in it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefix_index.layout import Cause, Volatility, judged_name


@pytest.mark.parametrize(
    ("name", "volatility", "cause"),
    [
        ("CURRENT_TIME", Volatility.PER_REQUEST, Cause.TIME),
        ("now", Volatility.PER_REQUEST, Cause.TIME),
        ("datetime.now().isoformat()", Volatility.PER_REQUEST, Cause.TIME),
        ("new Date().toISOString()", Volatility.PER_REQUEST, Cause.TIME),
        ("strftime('%H:%M')", Volatility.PER_REQUEST, Cause.TIME),
        ("strftime_now('%d %b %Y')", Volatility.PER_SESSION, Cause.DATE),
        ("date.today()", Volatility.PER_SESSION, Cause.DATE),
        ("today", Volatility.PER_SESSION, Cause.DATE),
        ("time.time()", Volatility.PER_REQUEST, Cause.EPOCH),
        ("Date.now()", Volatility.PER_REQUEST, Cause.EPOCH),
        ("uuid.uuid4()", Volatility.PER_REQUEST, Cause.UUID),
        ("random.randint(0, 9)", Volatility.PER_REQUEST, Cause.RANDOM),
        ("request_id", Volatility.PER_REQUEST, Cause.REQUEST_ID),
        ("sessionId", Volatility.PER_SESSION, Cause.SESSION_ID),
        ("user_name", Volatility.PER_SESSION, Cause.USER),
        ("userName", Volatility.PER_SESSION, Cause.USER),
        ("locale", Volatility.PER_TENANT, Cause.CONFIG),
        ("max_step_num", Volatility.PER_TENANT, Cause.CONFIG),
        ("number_of_queries", Volatility.PER_TENANT, Cause.CONFIG),
        ("tools", Volatility.PER_TENANT, Cause.CONFIG),
        ("question", Volatility.PER_REQUEST, Cause.CONTENT),
        ("user_query", Volatility.PER_REQUEST, Cause.CONTENT),
        ("documents", Volatility.PER_REQUEST, Cause.CONTENT),
        ("chat_history", Volatility.PER_SESSION, Cause.CONTENT),
        ("step", Volatility.PER_REQUEST, Cause.COUNTER),
        ("step_description", Volatility.PER_REQUEST, Cause.CONTENT),
        ("date_format", Volatility.PER_TENANT, Cause.CONFIG),
        ("avg_time_between_calls", Volatility.PER_REQUEST, Cause.UNKNOWN),
        ("skills_section", Volatility.PER_TENANT, Cause.CONFIG),
        ("subagent_section", Volatility.PER_REQUEST, Cause.UNKNOWN),
        ("section", Volatility.PER_REQUEST, Cause.CONTENT),
        ("frobnicate", Volatility.PER_REQUEST, Cause.UNKNOWN),
    ],
)
def test_a_name_tells_how_often_it_changes_and_why(name: str, volatility: Volatility, cause: Cause) -> None:
    assert judged_name(name) == (volatility, cause)


@given(st.text(max_size=600))
def test_any_name_gets_a_judgement(name: str) -> None:
    volatility, cause = judged_name(name)
    assert volatility in Volatility
    assert cause in Cause
