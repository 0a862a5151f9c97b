"""Numbers of things read as a sentence does."""

from billing.counting import counted


def test_one_is_one_and_all_others_are_several() -> None:
    assert [counted(count, "row") for count in (0, 1, 2, 1000)] == ["0 rows", "1 row", "2 rows", "1,000 rows"]
    assert counted(2, "call not measured", "calls not measured") == "2 calls not measured"
