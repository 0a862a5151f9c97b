"""How far expectations can be relied on: the window is over the last answers, whatever came before."""

import random

from gateway.reliability import WINDOW, Mode, ReliabilityTable


def test_the_window_is_the_sum_of_the_last_answers() -> None:
    dice, table = random.Random(3), ReliabilityTable()
    answers = [(dice.randrange(1, 500), dice.randrange(200), dice.randrange(200)) for _ in range(3 * WINDOW + 7)]
    for answer in answers:
        table.compare("e0", Mode.RECEIPTS, *answer)
    last = answers[-WINDOW:]
    found = table.as_json()["overall"]
    assert isinstance(found, dict)
    window = found["window"]
    assert window["answers"] == WINDOW
    assert window["prompt_tokens"] == sum(prompt for prompt, _, _ in last)
    assert window["expected_tokens"] == sum(expected for _, expected, _ in last)
    assert window["reported_tokens"] == sum(reported for _, _, reported in last)
    assert window["too_many_tokens"] == sum(max(expected - reported, 0) for _, expected, reported in last)
    assert window["too_few_tokens"] == sum(max(reported - expected, 0) for _, expected, reported in last)
    assert found["total"]["answers"] == len(answers)
