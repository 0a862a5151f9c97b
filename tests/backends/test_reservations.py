"""Work in flight against a naive sum over the open reservations."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.reservations import InFlightCounter, Reservation
from backends.types import InFlight

steps = st.lists(
    st.one_of(
        st.tuples(st.just("reserve"), st.integers(0, 50), st.integers(0, 50)),
        st.tuples(st.sampled_from(["first_token", "release"]), st.integers(0, 9), st.just(0)),
    ),
    max_size=40,
)


@given(steps)
def test_the_counter_is_the_sum_of_what_is_open_however_often_things_are_given_back(
    taken: list[tuple[str, int, int]],
) -> None:
    counter = InFlightCounter(lambda: None)
    reservations: list[Reservation] = []
    model: list[list[int]] = []
    for action, first, second in taken:
        if action == "reserve":
            reservations.append(Reservation(counter, first, second))
            model.append([1, first, second])
        elif reservations:
            index = first % len(reservations)
            getattr(reservations[index], action)()
            if action == "release":
                model[index] = [0, 0, 0]
            model[index][1] = 0
        assert counter.read() == InFlight(*(sum(column) for column in zip(*model, strict=True)) if model else ())


def test_a_reservation_gives_itself_back_when_its_block_fails() -> None:
    counter = InFlightCounter(lambda: None)

    def fail_after_the_first_token() -> None:
        with Reservation(counter, 5, 6) as reservation:
            reservation.first_token()
            assert counter.read() == InFlight(1, 0, 6)
            raise KeyError

    with pytest.raises(KeyError):
        fail_after_the_first_token()
    assert counter.read() == InFlight()
