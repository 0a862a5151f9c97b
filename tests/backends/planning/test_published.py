"""Plans against what is published: of weights, KV caches, steps, batches. A popular figure that differs is named."""

import random
from dataclasses import replace
from itertools import pairwise

import pytest

from backends.hardware import GPUS
from backends.models import CATALOGUE, Layers, PerHead
from backends.planning import (
    ApiPrice,
    Bits,
    Machine,
    Request,
    at_batch,
    best,
    break_even_tokens,
    decode_step,
    kv_per_token,
    mix_price,
    prefill,
    weights,
)
from backends.planning.paging import Kept, Lengths, play

GIB = 1024**3


def machine(model: str, gpu: str = "h100", gpus: int = 1, weight_bits: Bits = 16, kv_bits: Bits = 16) -> Machine:
    return Machine(CATALOGUE[model], GPUS[gpu], gpus, weight_bits, kv_bits)


def test_70b_at_16_bits_is_140_gb_and_42_ms_of_an_h100s_bandwidth() -> None:
    """70.6 billion parameters are 141.2 GB, read once for each token: 42 ms at the whole 3.35 TB/s."""
    large = machine("llama-3.1-70b")
    assert weights(large).value == pytest.approx(140e9, rel=0.01)
    whole = replace(large, bandwidth_share=1.0)
    assert decode_step(whole, 1, 0).seconds == pytest.approx(141.2e9 / 3.35e12)
    assert decode_step(large, 1, 0).bound == "memory bandwidth"


def test_of_deepseek_v3s_671_billion_parameters_a_token_goes_through_37() -> None:
    model = CATALOGUE["deepseek-v3"]
    assert weights(machine("deepseek-v3", weight_bits=8)).value == 671e9
    assert model.params_read(1) == pytest.approx(37e9)
    assert model.params_read(1_000) == pytest.approx(671e9, rel=1e-6)


def test_a_batch_of_256_reads_nearly_all_experts_of_mixtral() -> None:
    """Eight of which a token takes two: (3/4)^B of them are not touched."""
    model = CATALOGUE["mixtral-8x7b"]
    read = [model.params_read(tokens) for tokens in (1, 4, 16, 256)]
    assert read[0] == pytest.approx(12.9e9)
    assert read[3] == pytest.approx(46.7e9)
    assert all(less < more for less, more in pairwise(read))


def test_deepseek_v2_keeps_93_3_percent_less_than_deepseek_67b_with_its_cache_in_6_bits() -> None:
    """The paper's figure is of a cache in 6 bits on average against one in 16; the latent vectors alone are 82.2 %."""
    old, new = (kv_per_token(machine(name)).value for name in ("deepseek-67b", "deepseek-v2"))
    assert old == 389_120
    assert new == 69_120
    assert 1 - new / old == pytest.approx(0.822, abs=5e-4)
    assert 1 - new * 6 / 16 / old == pytest.approx(0.933, abs=5e-4)


def test_2048_tokens_of_a_7b_model_with_a_key_for_each_head_are_a_gib_and_less_with_grouped_heads() -> None:
    assert machine("llama-2-7b").kv_bytes(2048) == GIB
    grouped = replace(CATALOGUE["llama-2-7b"], cached=PerHead(8, 128))
    assert replace(machine("llama-2-7b"), model=grouped).kv_bytes(2048) == GIB / 4
    assert machine("qwen2.5-7b").kv_bytes(2048) == 2048 * 57_344


def test_layers_with_a_window_stop_growing() -> None:
    """gpt-oss-20b: half of the layers keep 128 tokens and no more, 3 MiB of a sequence."""
    small = machine("gpt-oss-20b")
    assert small.kv_bytes(1_129) - small.kv_bytes(1_128) == 24_576
    windows = replace(CATALOGUE["gpt-oss-20b"], layers=(Layers(12, 128),))
    assert replace(small, model=windows).kv_bytes(100_000) == 3 * 1024**2


@pytest.mark.parametrize("model", ["llama-3.1-8b", "llama-3.1-70b", "qwen3-32b"])
def test_eight_bits_halve_the_time_of_a_step(model: str) -> None:
    wide, narrow = (decode_step(machine(model, weight_bits=bits, kv_bits=bits), 8, 2_000) for bits in (16, 8))
    assert narrow.seconds == pytest.approx(wide.seconds / 2)


def test_four_bits_make_decoding_faster_and_prefills_not() -> None:
    wide, narrow = machine("llama-3.1-8b"), machine("llama-3.1-8b", weight_bits=4)
    assert decode_step(narrow, 1, 0).seconds == pytest.approx(decode_step(wide, 1, 0).seconds * 4.25 / 16)
    assert prefill(narrow, 8_000).seconds == prefill(wide, 8_000).seconds


def test_prefills_of_qwen3_32b_on_two_h100_are_within_a_quarter_of_what_llm_d_takes_for_granted() -> None:
    """15,928 tokens/s, the constant of its scheduler, held against the arithmetic of a cold prompt of its benchmark."""
    cold = prefill(machine("qwen3-32b", gpus=2), 7_200)
    assert 7_200 / cold.arithmetic_s == pytest.approx(15_928, rel=0.25)


def test_the_time_between_tokens_of_llm_ds_benchmark_is_near_what_it_measured() -> None:
    """118 requests of 7,584 + 937 tokens running on two H100, 63 ms between tokens."""
    step = decode_step(machine("qwen3-32b", gpus=2), 118, 7_584 + 937 / 2)
    assert step.seconds == pytest.approx(0.063, rel=0.15)


def test_a_7b_model_on_an_h100_writes_more_than_the_popular_thousand_tokens_a_second() -> None:
    """The popular figure is what eight answers at once make, or what early servers did; paged, an H100 has room for
    many times as many. docs/planning.md says so."""
    usual = Request(500, 250)
    small = machine("llama-2-7b")
    full = best(small, usual)
    assert full is not None
    assert full.sequences == 156
    assert full.output_tokens_per_s == pytest.approx(4_200, rel=0.01)
    few = next(count for count in range(1, 100) if at_batch(small, usual, count).output_tokens_per_s > 1_000)
    assert few == 8


def sharegpt_like(count: int = 1_500, seed: int = 1) -> list[Lengths]:
    """Means near those of ShareGPT in the paper (161 and 338 tokens), as widely spread."""
    rng = random.Random(seed)

    def tokens(mean_log: float, spread: float, most: int) -> int:
        return min(most, max(4, int(rng.lognormvariate(mean_log, spread))))

    return [Lengths(tokens(4.4, 1.2, 1_024), tokens(5.4, 0.9, 1_023)) for _ in range(count)]


MEMORY_TOKENS = 14 * 1_024
"""What an A100 of 40 GB has left beside OPT-13B: about 12 GB, 0.8 MB a token."""


def test_without_pages_60_to_80_percent_of_the_memory_is_wasted_and_with_them_four() -> None:
    """The paper measured 20.4, 26.8 and 38.2 % in use without pages, and 96.3 % with them."""
    kinds: tuple[Kept, ...] = ("longest", "power", "oracle", "pages")
    used = {kept: play(sharegpt_like(), MEMORY_TOKENS, kept).used for kept in kinds}
    assert used["longest"] == pytest.approx(0.204, abs=0.03)
    assert used["power"] == pytest.approx(0.268, abs=0.03)
    assert used["oracle"] == pytest.approx(0.382, abs=0.03)
    assert used["pages"] == pytest.approx(0.963, abs=0.03)


@pytest.mark.parametrize(
    ("kept", "memory_tokens"), [("longest", 1_500), ("power", 1_000), ("oracle", 1_000), ("pages", 1_001)]
)
def test_what_does_not_fit_alone_is_refused_and_not_waited_for(kept: Kept, memory_tokens: int) -> None:
    """Each has room for the tokens of the request, and not for what is reserved for them."""
    with pytest.raises(ValueError, match="1000 tokens does not fit"):
        play([Lengths(500, 500)], memory_tokens, kept)


def test_pages_make_two_to_five_times_as_many_answers_and_two_to_four_times_the_throughput() -> None:
    """OPT-13B on an A100 of 40 GB: more sequences share the reading of the weights."""
    requests, opt, usual = sharegpt_like(), machine("opt-13b", "a100-40g"), Request(152, 300)
    rates = {}
    kinds: tuple[Kept, ...] = ("longest", "oracle", "pages")
    for kept in kinds:
        sequences = play(requests, MEMORY_TOKENS, kept).sequences
        rates[kept] = at_batch(opt, usual, round(sequences)).requests_per_s
    assert rates["pages"] / rates["longest"] == pytest.approx(3, abs=1)
    assert rates["pages"] / rates["oracle"] == pytest.approx(2, abs=0.6)


def test_taking_in_requests_as_others_end_makes_three_to_five_times_as_many() -> None:
    """A static batch ends with its longest answer, and its prompts begin together. Of a mix as wide as ShareGPT's, with
    each answer reserved up to a limit of 2,048, most of its places stand empty."""
    requests, opt = sharegpt_like(2_000), machine("opt-13b", "a100-80g")
    places = 32
    step_s = decode_step(opt, places, 452).seconds
    batches = [requests[at : at + places] for at in range(0, len(requests), places)]
    still_s = sum(max(one.output_tokens for one in batch) for batch in batches) * step_s
    going_s = sum(one.output_tokens for one in requests) / places * step_s
    assert 3 <= still_s / going_s <= 5


def test_own_gpus_are_worth_a_look_from_some_hundred_million_tokens_a_month() -> None:
    """An H100 at $2.50 an hour costs $1,826 a month. At an API's $3 in and $15 out that is 365 million tokens, at $0.50
    in and $1.50 out 2.7 billion."""
    usual = Request(2_000, 400)
    assert break_even_tokens(usual, ApiPrice(3, 15), 1, 2.5) == pytest.approx(365e6, rel=0.05)
    assert mix_price(usual, ApiPrice(3, 15)) == pytest.approx(0.012)
    assert 1e9 < break_even_tokens(usual, ApiPrice(0.5, 1.5), 1, 2.5) < 4e9
