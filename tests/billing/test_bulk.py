"""Many rows in few statements."""

import sqlite3
from contextlib import closing

import pytest
from sqlalchemy import Column, Integer, MetaData, Table, Text
from sqlalchemy.dialects.sqlite import dialect

from billing.bulk import insertions

TABLE = Table("pairs", MetaData(), Column("number", Integer, primary_key=True), Column("word", Text))
QMARK = dialect(paramstyle="qmark")


@pytest.mark.parametrize("count", [0, 1, 7, 16, 17, 63, 64, 65, 200])
def test_every_row_is_inserted_once_and_in_order(count: int) -> None:
    rows = [(number, f"'{number}'; --" if number % 2 else None) for number in range(count)]
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE pairs (number INTEGER, word TEXT)")
        for text, values in insertions(TABLE, rows, QMARK, ""):
            connection.execute(text, values)
        assert connection.execute("SELECT * FROM pairs ORDER BY rowid").fetchall() == rows


def test_there_are_few_statements_to_be_prepared_and_few_to_be_run() -> None:
    texts = set()
    for count in range(1, 1000):
        statements = [text for text, _ in insertions(TABLE, [(1, "a")] * count, QMARK, "")]
        assert len(statements) <= 2 + count // 64
        texts.update(statements)
    assert len(texts) < 20


def test_what_becomes_of_a_row_that_is_there_is_said_once_for_all() -> None:
    rows = [(1, "a"), (1, "b"), (2, "c")]
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute("CREATE TABLE pairs (number INTEGER PRIMARY KEY, word TEXT)")
        for text, values in insertions(TABLE, rows, QMARK, " ON CONFLICT DO UPDATE SET word = word || excluded.word"):
            connection.execute(text, values)
        assert connection.execute("SELECT * FROM pairs").fetchall() == [(1, "ab"), (2, "c")]
