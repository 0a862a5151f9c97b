"""What engines say of the adapters they have at hand, and what is known of those they do not list."""

import pytest

from backends.dialects import load, names_read, scan
from backends.dialects.sglang import SGLANG
from backends.dialects.types import Dialect
from backends.dialects.vllm import VLLM
from backends.health import with_adapters
from backends.types import AdapterSample, EndpointFacts, KnownAdapter, ServedModel


def told(dialect: Dialect, page: str) -> AdapterSample | None:
    """Of a metrics page."""
    return load(dialect, scan(page, names_read(dialect)), 1.0).adapters


def info(running: str, waiting: str, at: str, slots: str = "4") -> str:
    """One series of vLLM's, which keeps those that it had before."""
    labels = f'max_lora="{slots}",running_lora_adapters="{running}",waiting_lora_adapters="{waiting}"'
    return f"vllm:lora_requests_info{{{labels}}} {at}\n"


def test_of_vllms_series_the_newest_counts_whatever_their_order() -> None:
    page = info("old", "", "1.796e+09") + info("a,b", "c", "1.796000002e+09") + info("b", "", "1.796000001e+09")
    assert told(VLLM, page) == AdapterSample(slots=4, in_use=frozenset({"a", "b", "c"}))


def test_where_no_adapter_is_at_work_that_is_known() -> None:
    assert told(VLLM, info("", "", "1")) == AdapterSample(slots=4, in_use=frozenset())


@pytest.mark.parametrize("slots", ["", "None", "0", "-1", "½", "1.5", "9" * 5000])
def test_a_number_of_slots_that_cannot_be_read_is_unknown(slots: str) -> None:
    assert told(VLLM, info("a", "", "1", slots)) == AdapterSample(slots=None, in_use=frozenset({"a"}))


def test_an_engine_that_says_nothing_of_adapters_leaves_them_unknown() -> None:
    assert told(VLLM, 'vllm:num_requests_running{engine="0"} 1') is None
    assert told(SGLANG, "sglang:num_running_reqs 1") is None


def test_sglang_tells_how_many_are_loaded_and_not_which() -> None:
    page = (
        'sglang:lora_pool_slots_total{dp_rank="0",tp_rank="0"} 8\nsglang:lora_pool_slots_total{dp_rank="1",tp_rank="0"}'
        ' 8\nsglang:lora_pool_slots_used{dp_rank="0",tp_rank="0"} 3\n'
        'sglang:lora_pool_slots_used{dp_rank="1",tp_rank="0"} 5\n'
    )
    assert told(SGLANG, page) == AdapterSample(slots=8, used=5)


@pytest.mark.parametrize("slots", ["-4", "1e300", "0.5"])
def test_a_pool_of_no_size_that_can_be_is_unknown(slots: str) -> None:
    page = f"sglang:lora_pool_slots_total {slots}\nsglang:lora_pool_slots_used {slots}\n"
    found = told(SGLANG, page)
    assert found is not None
    assert (found.slots, found.used) == (None, 0)


def test_figures_whose_sum_is_no_number_take_no_endpoint_down() -> None:
    page = "".join(f'vllm:num_requests_running{{engine="{rank}"}} 1.7e308\n' for rank in range(2))
    assert load(VLLM, scan(page, names_read(VLLM)), 1.0).running is None


def test_adapters_that_an_engine_does_not_list_are_served_where_their_model_is() -> None:
    facts = EndpointFacts("trtllm", (ServedModel("m", max_model_len=4096),))
    known = (
        KnownAdapter("sql", "m"),
        KnownAdapter("m", "m"),
        KnownAdapter("of another", "other"),
        KnownAdapter("of llama.cpp", "m", frozenset({"llamacpp"})),
    )
    assert with_adapters(facts, known).models == (
        ServedModel("m", max_model_len=4096),
        ServedModel("sql", max_model_len=4096, parent="m"),
    )
    assert with_adapters(facts, known[1:]) is facts
