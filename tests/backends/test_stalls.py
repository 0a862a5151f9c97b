"""The pulse of an engine: what its metrics page says of whether it moves."""

import pytest

from backends.dialects import DIALECTS, load, names_read, scan
from backends.stalls import Pulse
from backends.types import LoadSample


def read(*samples: LoadSample | None) -> Pulse:
    pulse = Pulse()
    for sample in samples:
        pulse.page(sample)
    return pulse


def page(
    now_s: float,
    waiting: int | None = 3,
    running: int | None = 8,
    prefix_queries: float = 90.0,
    steps: float | None = None,
    kv_use: float | None = None,
) -> LoadSample:
    return LoadSample(
        now_s, running=running, waiting=waiting, prefix_queries=prefix_queries, steps=steps, kv_use=kv_use
    )


def test_requests_wait_and_nothing_moves_since_the_first_of_two_equal_pages() -> None:
    pulse = read(page(1.0), page(3.0), page(5.0))
    assert (pulse.still_since_s, pulse.moved_s) == (1.0, None)


@pytest.mark.parametrize(
    "then",
    [
        page(3.0, prefix_queries=91.0),
        page(3.0, steps=1.0),
        page(3.0, waiting=0),
        page(3.0, waiting=None),
        page(3.0, running=9),
        page(3.0, kv_use=0.5),
        None,
        LoadSample(3.0, running=8, waiting=3),
    ],
)
def test_a_page_that_moves_or_says_too_little_is_no_stall(then: LoadSample | None) -> None:
    assert read(page(1.0), then).still_since_s is None


def test_requests_that_are_over_are_no_sign_of_life_where_steps_are_counted() -> None:
    """They may have been given up."""
    still = [LoadSample(at_s, running=8, waiting=3, steps=7.0, finished=at_s) for at_s in (1.0, 3.0)]
    assert read(*still).still_since_s == 1.0
    bare = [LoadSample(at_s, running=8, waiting=3, finished=at_s) for at_s in (1.0, 3.0)]
    assert read(*bare).moved_s == 3.0


def test_any_counter_that_moves_is_a_sign_of_life() -> None:
    pulse = read(page(1.0), page(3.0), page(5.0, prefix_queries=91.0))
    assert (pulse.moved_s, pulse.still_since_s) == (5.0, None)


def test_what_is_not_counted_neither_moves_nor_stands_still() -> None:
    pulse = read(LoadSample(1.0, running=1, waiting=2), LoadSample(3.0, running=1, waiting=2))
    assert (pulse.still_since_s, pulse.moved_s) == (None, None)


PAGES = {
    "vllm": 'vllm:num_requests_running{{engine="0"}} 8\nvllm:num_requests_waiting{{engine="0"}} 3\n'
    'vllm:iteration_tokens_total_count{{engine="0"}} {moves}\nvllm:generation_tokens_total{{engine="0"}} 5\n',
    "sglang": "sglang:num_running_reqs 8\nsglang:num_queue_reqs 3\nsglang:inter_token_latency_seconds_count {moves}\n",
    "trtllm": "trtllm_num_requests_running 8\ntrtllm_num_requests_waiting 3\n"
    "trtllm_iteration_latency_seconds_count {moves}\n",
    "tgi": "tgi_batch_current_size 8\ntgi_queue_size 3\n"
    'tgi_batch_inference_duration_count{{method="decode"}} {moves}\n',
    "llamacpp": "llamacpp:requests_processing 8\nllamacpp:requests_deferred 3\nllamacpp:n_decode_total {moves}\n",
}


@pytest.mark.parametrize("engine", PAGES)
def test_the_steps_of_every_engine_are_read_from_its_own_page(engine: str) -> None:
    """Old counters of tokens stand still while an answer is given: what moves with each step is looked at too."""
    dialect = next(one for one in DIALECTS if one.name == engine)

    def sample(now_s: float, moves: int) -> LoadSample:
        return load(dialect, scan(PAGES[engine].format(moves=moves), names_read(dialect)), now_s)

    assert read(sample(1.0, 70), sample(3.0, 70)).still_since_s == 1.0
    assert read(sample(1.0, 70), sample(3.0, 71)).moved_s == 3.0
