"""The parts that views are made of, against oracles: amounts for reading, and a page that is brought to agree."""

import random
from collections.abc import Iterator
from decimal import ROUND_HALF_EVEN, Decimal

import pytest
from playwright.sync_api import Page

from tests.ui.conftest import OpenPage
from tests.ui.world import World

pytestmark = pytest.mark.ui


@pytest.fixture
def page(running: World, open_page: OpenPage) -> Page:
    return open_page(running.ui)


def in_module(page: Page, module: str, call: str, argument: object) -> object:
    """The value of a call of a module of the dashboard."""
    source = f'async argument => {{ const it = await import(new URL("static/{module}", document.baseURI)); {call} }}'
    return page.evaluate(source, argument)


def amounts(rng: random.Random) -> Iterator[str]:
    """Of all sizes, many of them just between two rounded ones."""
    yield from ("0.000000000000", "0.995000000000", "0.999999999999", "9999999999.995", "-0.005", "12", "0.0000001")
    for _ in range(2_000):
        whole = rng.choice([0, 0, rng.randrange(10), rng.randrange(10 ** rng.randrange(1, 16))])
        digits = "".join(rng.choice("0005999" + str(rng.randrange(10))) for _ in range(12))
        yield f"{rng.choice(['', '', '-'])}{whole}.{digits}"


def as_people_read(text: str) -> str:
    """Half to even at two decimals; below one unit three digits that count, six decimals at most."""
    amount = Decimal(text)
    small = abs(amount) < 1 and amount != 0
    leading = -amount.adjusted() - 1 if small else 0
    places = min(6, max(2, leading + 3)) if small else 2
    rounded = abs(amount).quantize(Decimal(1).scaleb(-places), ROUND_HALF_EVEN)
    least = rounded == 0 and amount != 0
    shown = Decimal(1).scaleb(-places) if least else rounded
    return f"{'< ' if least else ''}{'-' if text.startswith('-') else ''}{shown:,}\u00a0USD"


def test_amounts_are_rounded_half_to_even_by_integers(page: Page) -> None:
    given = list(amounts(random.Random(1)))
    told = in_module(page, "units.js", 'return argument.map((one) => it.money(one, "USD"));', given)
    assert told == [as_people_read(one) for one in given]


def test_nothing_known_is_never_a_number(page: Page) -> None:
    writers = ["count", "short", "share", "seconds", "ago", "rate", "money"]
    call = "return argument.flatMap((one) => [it[one](null), it[one](undefined)]);"
    assert in_module(page, "units.js", call, writers) == ["unknown"] * 2 * len(writers)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (4e-5, "40 µs"),
        (0.9999e-3, "1.00 ms"),
        (0.0123, "12.3 ms"),
        (0.99951, "1.00 s"),
        (89.96, "90.0 s"),
        (90, "1 min 30 s"),
        (3700, "1 h 1 min"),
        (90_000, "1 d 1 h"),
    ],
)
def test_durations_have_the_unit_that_fits(page: Page, seconds: float, text: str) -> None:
    assert in_module(page, "units.js", "return it.seconds(argument);", seconds) == text.replace(" ", "\u00a0")


AGREE = """
    const row = ([key, text, tag]) =>
        it.h(tag, { key, title: text || null }, text, text.length === 2 && it.h("b", {}, text));
    const rows = (keys) => it.h("ul", {}, keys.map(row));
    const kept = document.createElement("div");
    const wrong = [];
    let nodes = new Map();
    for (const keys of argument) {
        it.render(kept, rows(keys));
        const anew = document.createElement("div");
        it.render(anew, rows(keys));
        if (!kept.isEqualNode(anew)) wrong.push(keys);
        const now = new Map(keys.map(([key, , tag], at) => [`${tag} ${key}`, kept.firstChild.childNodes[at]]));
        for (const [key, node] of now) if (nodes.has(key) && nodes.get(key) !== node) wrong.push(key);
        nodes = now;
    }
    return wrong;
"""


def test_a_page_brought_to_agree_is_as_one_made_anew_and_keeps_its_elements(page: Page) -> None:
    rng = random.Random(2)

    def keys() -> list[list[str]]:
        some = rng.sample("abcdefgh", rng.randrange(9))
        return [[key, rng.choice(["", "x", "xy", "<b>"]), rng.choice(["li", "li", "li", "p"])] for key in some]

    assert in_module(page, "dom.js", AGREE, [keys() for _ in range(400)]) == []
