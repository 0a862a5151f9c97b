"""What a shadow remembers is bounded, what it is offered too; books and pages count what they are told."""

from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from billing import Usage
from gateway.fix_metrics import FixMetrics
from gateway.fixes.book import MOST_ROWS, FixBook
from gateway.fixes.finishes import finish_of
from gateway.fixes.pages import arm_rows, fixes_page, shadow_rows
from gateway.fixes.shadow import MOST_PROMPTS, RecentChains
from gateway.types import Applied, Arm
from prefix_index import Chain


def chain(*blocks: int) -> Chain:
    return Chain(b"".join(block.to_bytes(8, "little") for block in blocks), 16, 16 * len(blocks))


def test_a_prompt_is_held_against_the_last_ones_of_its_name() -> None:
    recent = RecentChains()
    assert recent.cached_tokens(("a",), chain(1, 2, 3)) == 0
    assert recent.cached_tokens(("a",), chain(1, 2, 4)) == 32
    assert recent.cached_tokens(("b",), chain(1, 2, 4)) == 0
    assert recent.cached_tokens(("a",), Chain(chain(1, 2).hashes, 32, 64)) == 0, "blocks of another size"
    for number in range(MOST_PROMPTS):
        recent.cached_tokens(("a",), chain(100 + number))
    assert recent.cached_tokens(("a",), chain(1, 2, 3)) == 0, "the last few"


def test_the_name_that_was_quiet_for_longest_is_forgotten_first() -> None:
    recent = RecentChains(most_bytes=40)
    for name in ("a", "b", "a", "c"):
        recent.cached_tokens((name,), chain(1, 2))
    assert recent.cached_tokens(("b",), chain(1, 2)) == 0
    recent = RecentChains(most_bytes=8)
    assert recent.cached_tokens(("a",), chain(1, 2)) == 0
    assert recent.cached_tokens(("a",), chain(1, 2)) == 0, "more than it may keep at all"


@pytest.mark.parametrize(
    ("answer", "finish"),
    [
        (b'{"choices":[{"finish_reason":"stop","message":{}}]}', "stop"),
        (b'data: {"choices":[{"finish_reason": "length"}]}\n\ndata: [DONE]\n\n', "length"),
        (
            b'data: {"choices":[{"finish_reason":null}]}\n\ndata: {"choices":[{"finish_reason":"tool_calls"}]}',
            "tool_calls",
        ),
        (b'{"content":[],"stop_reason":"end_turn"}', "stop"),
        (b'{"stop_reason":"tool_use"}', "tool_calls"),
        (b'{"status":"completed","output":[]}', "stop"),
        (b'{"status":"incomplete"}', "length"),
        (b'{"finish_reason":"eos_token"}', "other"),
        (b'{"text":"\\"finish_reason\\":\\"length\\""}', "unknown"),
        (None, "unknown"),
    ],
)
def test_why_an_answer_ended_is_read_in_every_dialect(answer: bytes | None, finish: str) -> None:
    assert finish_of(answer) == finish


def test_pages_of_workers_are_added_and_shares_computed_again() -> None:
    books = [FixBook(FixMetrics(CollectorRegistry())) for _ in range(2)]
    applied = Applied(Arm.FIXED, ("tools", "lines"))
    for share, book in enumerate(books):
        book.shadow("acme", "tools", 100, 0, 50 * share)
        book.settled("acme", applied, Usage(100, 90, 10), "stop")
    books[0].settled("acme", applied, Usage(100, None, 10), "length")
    books[1].settled("beta", Applied(Arm.LEFT, ("day",)), None, "unknown")
    pages = [{"rules": [], "shadow": shadow_rows(one.shadows()), "arms": arm_rows(one.arms())} for one in books]
    found = fixes_page(pages)
    assert found["shadow"] == [
        {
            "tenant": "acme",
            "fixes": "tools",
            "requests": 2,
            "prompt_tokens": 200,
            "cached_tokens": 0,
            "cached_tokens_fixed": 50,
            "cached_share": 0.0,
            "cached_share_fixed": 0.25,
        }
    ]
    arms: Any = found["arms"]
    of_acme, of_beta = arms
    assert (of_acme["requests"], of_acme["hit_share"], of_acme["finishes"]) == (3, 0.9, {"stop": 2, "length": 1})
    assert (of_beta["arm"], of_beta["hit_share"], of_beta["requests"]) == ("off", None, 1)


def test_books_are_bounded() -> None:
    book = FixBook(FixMetrics(CollectorRegistry()))
    for number in range(MOST_ROWS + 2):
        book.shadow(f"t{number}", "tools", 1, 0, 0)
        book.settled(f"t{number}", Applied(Arm.FIXED, ("tools",)), None, "stop")
    assert len(list(book.shadows())) == len(list(book.arms())) == MOST_ROWS
