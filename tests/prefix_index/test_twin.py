"""The stand-in knows all that was written whenever it is asked, and is told only what still has to be."""

from hypothesis import given
from hypothesis import strategies as st

from prefix_index.radix import RadixIndex
from prefix_index.twin import Twin
from prefix_index.types import Claim
from prefix_index.write_queue import Write, WriteQueue
from tests.prefix_index.subjects import chain

prompts = st.text("xy", min_size=1, max_size=4)
holders = st.sampled_from("ab")
calls = (
    st.tuples(st.just("observe"), holders, prompts)
    | st.tuples(st.just("forget"), holders, prompts)
    | st.tuples(st.just("here"), holders, prompts)
    | st.tuples(st.just("clear"), holders, prompts)
    | st.tuples(st.just("look"), holders, prompts)
)


@given(st.lists(calls, max_size=20), prompts)
def test_it_is_as_if_it_had_been_told_at_once(steps: list[tuple[str, str, str]], prompt: str) -> None:
    twin = Twin(capacity_blocks=1000, clock=lambda: 0.0, speculative_s=600.0)
    queue, index = WriteQueue(max_writes=100, max_bytes=10**6), RadixIndex[str]()
    for step, holder, told in steps:
        match step:
            case "observe" | "forget":
                write = Write(holder, Claim.CONFIRMED, chain(told), 0 if step == "forget" else None)
                queue.put(write)
                twin.learn(write)
                if step == "observe":
                    index.observe(holder, chain(told))
                else:
                    index.forget(holder, chain(told), 0, Claim.CONFIRMED)
            case "here":
                twin.observe(holder, chain(told), Claim.CONFIRMED)
                index.observe(holder, chain(told))
            case "clear":
                queue.put(Write(holder, None, ending=True))
                twin.clear(holder)
                index.clear(holder)
            case _:
                assert twin.match(chain(told)).blocks == index.match(chain(told)).blocks
    assert twin.match(chain(prompt)).blocks == index.match(chain(prompt)).blocks
    assert twin.index.check() == []


def test_what_nobody_looks_at_does_not_pile_up() -> None:
    twin = Twin(capacity_blocks=1000, clock=lambda: 0.0, speculative_s=600.0)
    for number in range(10_000):
        twin.learn(Write("a", Claim.CONFIRMED, chain(f"{number:04}")))
    assert len(twin._untold) < 1000
