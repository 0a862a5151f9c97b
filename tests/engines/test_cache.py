"""What the gateway expects to be cached is what the engine reports.

    conversation: turn 1, turn 2, ... ──> gateway ──expected──┐
                                             └──> engine ──reported──> equal?

vLLM reuses whole blocks: exactly equal. llama.cpp reuses token by token what its slot read last, so it may report up to
a block more than whole blocks of ours; less only until it has been seen to forget what was overwritten.
"""

from dataclasses import dataclass

import httpx
import pytest

from tests.engines.conftest import Front
from tests.engines.corpora import Body, conversations, one_token
from tests.engines.figures import Figures
from tests.engines.servers import VLLM_BLOCK_TOKENS

pytestmark = [pytest.mark.engines, pytest.mark.timeout(1800)]

LONGEST_BYTES = 16_000
"""Of a conversation: what all of them together leave in a cache stays below what vLLM's holds here."""
LLAMACPP_BLOCK_TOKENS = 16
"""The gateway's own, since llama.cpp has none."""
LLAMACPP_SHARE = 0.99
"""Of all turns: the first that is overwritten unforeseen teaches the gateway how such an engine works."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One answered request of a conversation."""

    name: str
    prompt_tokens: int
    expected_tokens: int
    reported_tokens: int


def talk(front: Front) -> list[Turn]:
    """Send every turn of every conversation, one after the other, and read what the ledger says of them."""
    names: dict[str, str] = {}
    for conversation in conversations(LONGEST_BYTES):
        for body in conversation:
            answer = _post(front.http, body)
            assert answer.status_code == httpx.codes.OK, (body.name, answer.status_code)
            names[answer.headers["x-request-id"]] = body.name
    rows = front.ledger()
    assert len(rows) == len(names)
    turns = []
    for row in rows:
        assert row.prompt_tokens is not None
        assert row.expected_cached_tokens is not None
        assert row.cached_tokens is not None
        turns.append(Turn(names[row.request_id], row.prompt_tokens, row.expected_cached_tokens, row.cached_tokens))
    return turns


def _post(http: httpx.Client, body: Body) -> httpx.Response:
    return http.post(body.path, content=one_token(body))


def _sums(turns: list[Turn]) -> str:
    expected, reported = sum(turn.expected_tokens for turn in turns), sum(turn.reported_tokens for turn in turns)
    return f"{sum(turn.prompt_tokens for turn in turns):,} prompt, {expected:,} expected, {reported:,} reported"


@pytest.mark.parametrize("engine", [("vllm", "tiny")], indirect=True, ids="-".join)
def test_vllm_reports_exactly_the_blocks_that_were_expected(front: Front, figures: Figures) -> None:
    turns = talk(front)
    different = [turn for turn in turns if turn.expected_tokens != turn.reported_tokens]
    what = "turns with expected = reported cached tokens"
    figures.add_share("vllm", what, len(turns) - len(different), len(turns), least=1.0)
    figures.add("vllm", "tokens of these turns", _sums(turns))
    assert different == []
    assert sum(turn.reported_tokens > 0 for turn in turns) > 300
    assert all(turn.reported_tokens % VLLM_BLOCK_TOKENS == 0 for turn in turns)


@pytest.mark.parametrize("engine", [("llamacpp", "tiny")], indirect=True, ids="-".join)
def test_llamacpp_reports_what_was_expected_and_less_than_a_block_more(front: Front, figures: Figures) -> None:
    turns = talk(front)
    outside = [turn for turn in turns if not 0 <= turn.reported_tokens - turn.expected_tokens < LLAMACPP_BLOCK_TOKENS]
    what = f"turns with 0 <= reported - expected < {LLAMACPP_BLOCK_TOKENS} tokens"
    figures.add_share("llamacpp", what, len(turns) - len(outside), len(turns), least=LLAMACPP_SHARE)
    figures.add("llamacpp", "tokens of these turns", _sums(turns))
    for turn in outside:
        found = f"expected {turn.expected_tokens}, reported {turn.reported_tokens}"
        figures.add("llamacpp", f"  outside: {turn.name}", found)
    assert len(outside) <= (1 - LLAMACPP_SHARE) * len(turns)
    assert len(turns) > 300
    assert sum(turn.reported_tokens >= LLAMACPP_BLOCK_TOKENS for turn in turns) > 300
