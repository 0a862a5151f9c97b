"""Pages that are kept: made once for all who ask meanwhile, anew when they are old; a failure as long as it took."""

import asyncio

import pytest

from gateway.errors import Unavailable
from gateway.ui.kept import MOST_FAILED_S, REST, Kept


class Book:
    """Counts how often a page was made; making one takes `takes_s` by its clock."""

    def __init__(self) -> None:
        self.now_s, self.takes_s, self.made, self.fails = 0.0, 0.0, 0, False

    async def make(self) -> int:
        await asyncio.sleep(0)
        self.now_s += self.takes_s
        if self.fails:
            raise LookupError
        self.made += 1
        return self.made


async def test_all_who_ask_meanwhile_get_the_same() -> None:
    book = Book()
    kept = Kept(10.0, lambda: book.now_s)
    assert set(await asyncio.gather(*(kept.get("a", book.make) for _ in range(9)))) == {1}
    assert await kept.get("b", book.make) == 2
    book.now_s = 9.9
    assert await kept.get("a", book.make) == 1
    book.now_s = 10.0
    assert await kept.get("a", book.make) == 3


async def test_what_takes_long_is_kept_for_longer() -> None:
    book = Book()
    kept = Kept(1.0, lambda: book.now_s)
    book.takes_s = 2.0
    assert await kept.get("a", book.make) == 1
    book.now_s = 2.0 + REST * 2.0 - 0.1
    assert await kept.get("a", book.make) == 1
    book.now_s += 0.2
    assert await kept.get("a", book.make) == 2


async def test_a_quick_failure_is_not_kept() -> None:
    book = Book()
    kept = Kept(10.0, lambda: book.now_s)
    book.fails = True
    with pytest.raises(LookupError):
        await kept.get("a", book.make)
    book.fails = False
    assert await kept.get("a", book.make) == 1


async def test_a_failure_that_took_long_is_told_to_who_asks_next_without_waiting() -> None:
    book = Book()
    kept = Kept(10.0, lambda: book.now_s)
    book.takes_s = 8.0

    async def fail() -> int:
        await book.make()
        raise Unavailable("the ledger is silent")

    answers = await asyncio.gather(*(kept.get("a", fail) for _ in range(9)), return_exceptions=True)
    assert ({str(one) for one in answers}, book.made) == ({"the ledger is silent"}, 1)
    book.now_s += MOST_FAILED_S
    assert await kept.get("a", book.make) == 2


async def test_only_so_many_questions_are_kept() -> None:
    book = Book()
    kept = Kept(10.0, lambda: book.now_s)
    for number in range(100):
        await kept.get(str(number), book.make)
    assert len(kept._pages) == 32
