"""What a fix would change is never taken for in order."""

import json
from typing import Any

from hypothesis import given

from gateway.edge.reading import read_request
from gateway.errors import BadRequest
from gateway.fixes import Fix, How, fixed
from gateway.fixes.worth import worth
from gateway.types import Route
from tests.gateway.fixes.requests import arrival, request_of
from tests.gateway.fixes.test_fixing import BODIES, OPTIONS, SYSTEM, chat, function


@given(BODIES, OPTIONS)
def test_a_body_that_a_fix_changes_is_worth_that_fix(body: dict[str, Any], how: How) -> None:
    raw = json.dumps(body | {"max_tokens": 1, "model": "m"}).encode()
    try:
        request = read_request(arrival(route=how.route), raw)
    except BadRequest:
        return
    for fix in how.fixes:
        alone = How(how.route, (fix,), how.volatile_to, how.most_lines, how.tools_in)
        if fixed(raw, alone).fixes:
            assert worth(request, alone).fixes == (fix,)


def test_what_is_in_order_is_worth_nothing() -> None:
    how = How(Route.CHAT, (Fix.TOOLS, Fix.LINES, Fix.DAY))
    assert worth(request_of(chat(SYSTEM, tools=[function("a"), function("b")])), how).fixes == ()
    assert worth(request_of(chat()), how).fixes == (Fix.LINES, Fix.DAY)
    blocks = [{"type": "text", "text": "Time: 2026-11-30T12:00:01Z\nYou help."}]
    body = {"model": "m", "max_tokens": 1, "system": blocks, "messages": [{"role": "user", "content": "x"}]}
    of_messages = How(Route.MESSAGES, (Fix.LINES,))
    assert worth(request_of(body, route=Route.MESSAGES), of_messages) is of_messages
