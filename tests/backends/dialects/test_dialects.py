"""Every dialect against pages of its engine: recorded ones where there are, else composed from its metric names."""

import json
import time
from pathlib import Path

import pytest

from backends.dialects import (
    DIALECTS,
    OPENAI,
    Dialect,
    facts,
    load,
    names_read,
    recognise,
    scan,
    served_models,
)
from backends.dialects.llamacpp import LLAMACPP
from backends.dialects.ollama import OLLAMA
from backends.dialects.sglang import SGLANG
from backends.dialects.tgi import TGI
from backends.dialects.trtllm import TRTLLM
from backends.dialects.types import RANKED_ROUTES
from backends.dialects.vllm import REFERENCE, VLLM
from backends.features import Feature, FeatureFact, Features, Standing
from backends.types import EndpointFacts, LoadSample, PriorityForm, ServedModel, TokenizeForm

CAPTURES = Path(__file__).parents[2] / "data" / "captures"
ENGINES = [dialect for dialect in DIALECTS if dialect is not OPENAI]


ON, OFF, UNKNOWN = Standing.ON, Standing.OFF, Standing.UNKNOWN


def features(dialect: Dialect, **known: Standing) -> Features:
    """Every feature of a dialect as nothing tells it, but for those given by the names of their members."""
    found = {feature: UNKNOWN if feature in dialect.flags else Standing.NEVER for feature in Feature}
    found |= {Feature[name.upper()]: standing for name, standing in known.items()}
    return {feature: FeatureFact(standing, dialect.flags.get(feature, "")) for feature, standing in found.items()}


def text(name: str) -> str:
    return (CAPTURES / name).read_text()


def page(name: str) -> object:
    return json.loads(text(name))


def read(dialect: Dialect, metrics: str) -> LoadSample:
    return load(dialect, scan(metrics, names_read(dialect)), 1.0)


def told(dialect: Dialect, models: object, metrics: str, info: dict[str, object]) -> EndpointFacts:
    return facts(dialect, models, scan(metrics, names_read(dialect)), info)


SGLANG_PAGE = """\
sglang:num_running_reqs{model_name="m",tp_rank="0",dp_rank="0"} 3.0
sglang:num_running_reqs{model_name="m",tp_rank="1",dp_rank="0"} 3.0
sglang:num_running_reqs{model_name="m",tp_rank="0",dp_rank="1"} 4.0
sglang:num_queue_reqs{model_name="m",tp_rank="0",dp_rank="0"} 1.0
sglang:token_usage{model_name="m",tp_rank="0",dp_rank="0"} 0.25
sglang:token_usage{model_name="m",tp_rank="0",dp_rank="1"} 0.75
sglang:prompt_tokens_total{model_name="m"} 1000.0
sglang:cached_tokens_total{model_name="m",cache_source="device"} 300.0
sglang:cached_tokens_total{model_name="m",cache_source="host"} 100.0
sglang:cached_tokens_total{model_name="m",cache_source="total"} 400.0
sglang:page_size{model_name="m",tp_rank="0",dp_rank="0"} 64.0
sglang:page_size{model_name="m",tp_rank="0",dp_rank="1"} 64.0
sglang:max_total_num_tokens{model_name="m",tp_rank="0",dp_rank="0"} 640.0
sglang:max_total_num_tokens{model_name="m",tp_rank="0",dp_rank="1"} 640.0
"""
TRTLLM_PAGE = """\
trtllm_num_requests_running{model_name="m",engine_type="undefined"} 2.0
trtllm_num_requests_waiting{model_name="m",engine_type="undefined"} 5.0
trtllm_kv_cache_utilization{model_name="m",engine_type="undefined"} 0.5
trtllm_prompt_tokens_total{model_name="m",engine_type="undefined"} 900.0
trtllm_prompt_cached_tokens_total{model_name="m",engine_type="undefined"} 320.0
trtllm_kv_cache_tokens_per_block{model_name="m",engine_type="undefined"} 32.0
trtllm_kv_cache_max_blocks{model_name="m",engine_type="undefined"} 100.0
"""
TGI_PAGE = """\
# TYPE tgi_queue_size gauge
tgi_queue_size 7
tgi_batch_current_size 2
tgi_batch_max_total_tokens 4096
"""


def test_vllm_is_told_by_the_owner_of_its_models() -> None:
    assert recognise(page("vllm-0.32-models.json")) is VLLM


def test_vllms_recorded_page_gives_block_size_capacity_models_and_version() -> None:
    version = page("vllm-0.32-version.json")
    assert isinstance(version, dict)
    assert told(VLLM, page("vllm-0.32-models.json"), text("vllm-0.32-metrics.txt"), version) == EndpointFacts(
        engine="vllm",
        models=(ServedModel("smollm2", max_model_len=8192),),
        version="0.32.0",
        block_size=128,
        capacity_blocks=364,
        capacity_tokens=364 * 128,
        reports_cached_tokens=None,
        cached_tokens_flag="--enable-prompt-tokens-details",
        tokenize=TokenizeForm.MESSAGES,
        priority=PriorityForm.LOWER_FIRST,
        features=features(VLLM, cached_tokens=UNKNOWN, prefix_caching=ON),
        routes=frozenset({"/v1/chat/completions", "/v1/completions"}),
        salted_routes=frozenset({"/v1/chat/completions", "/v1/completions"}),
        open_paths=VLLM.open_paths,
    )


def test_vllms_recorded_page_gives_its_load() -> None:
    assert read(VLLM, text("vllm-0.32-metrics.txt")) == LoadSample(
        fetched_at_s=1.0,
        running=0,
        waiting=0,
        kv_use=0.0,
        prefix_hits=3584.0,
        prefix_queries=6681.0,
        started_at_s=1795961218.54,
        awake=frozenset({"0"}),
        steps=6873.0,
    )


@pytest.mark.parametrize(
    ("name", "hits", "queries"),
    [
        ("vllm-0.32-metrics-engine-b.txt", 10784.0, 23822.0),
        ("vllm-0.32-pd-metrics-prefill.txt", 704.0, 1458.0),
        ("vllm-0.32-pd-metrics-decode.txt", 0.0, 840.0),
    ],
)
def test_vllms_hits_are_those_of_the_local_cache_not_of_the_transfer(name: str, hits: float, queries: float) -> None:
    sample = read(VLLM, text(name))
    assert (sample.prefix_hits, sample.prefix_queries) == (hits, queries)
    assert told(VLLM, {}, text(name), {}).block_size == 32


def test_older_vllm_names_are_read_too() -> None:
    old = "\n".join(
        [
            'vllm:num_requests_running{model_name="m"} 1.0',
            'vllm:gpu_cache_usage_perc{model_name="m"} 0.5',
            'vllm:gpu_prefix_cache_queries_total{model_name="m"} 10.0',
            'vllm:gpu_prefix_cache_hits_total{model_name="m"} 4.0',
            'vllm:cache_config_info{block_size="16",num_gpu_blocks="100"} 1.0',
        ]
    )
    sample = read(VLLM, old)
    assert (sample.running, sample.kv_use, sample.prefix_hits, sample.prefix_queries) == (1, 0.5, 4.0, 10.0)
    assert sample.waiting is None
    assert told(VLLM, {}, old, {}).capacity_blocks == 100


def test_vllms_ranks_are_summed_and_their_use_averaged() -> None:
    two = "\n".join(
        f'vllm:num_requests_running{{engine="{rank}"}} {rank + 1}\n'
        f'vllm:kv_cache_usage_perc{{engine="{rank}"}} 0.{rank * 4}\n'
        f'vllm:cache_config_info{{engine="{rank}",block_size="16",num_gpu_blocks="100"}} 1.0'
        for rank in range(2)
    )
    assert (read(VLLM, two).running, read(VLLM, two).kv_use) == (3, 0.2)
    assert told(VLLM, {}, two, {}).capacity_blocks == 200


def test_without_a_process_start_the_creation_of_vllms_counters_tells_it() -> None:
    two = "".join(f'vllm:prefix_cache_queries_created{{engine="{rank}"}} {1000.5 + rank}\n' for rank in range(2))
    assert read(VLLM, two).started_at_s == 1001.5


def test_figures_that_read_none_or_nan_are_unknown() -> None:
    unsure = 'vllm:cache_config_info{block_size="None",num_gpu_blocks="None"} 1.0\nvllm:kv_cache_usage_perc NaN\n'
    assert told(VLLM, {}, unsure, {}).block_size is None
    assert told(VLLM, {}, unsure, {}).capacity_blocks is None
    assert read(VLLM, unsure).kv_use is None


@pytest.mark.parametrize("figure", ["+Inf", "-Inf", "1e999"])
def test_figures_that_are_not_finite_are_unknown(figure: str) -> None:
    page = f"process_start_time_seconds {figure}\nvllm:num_requests_running {figure}\n"
    assert read(VLLM, page) == LoadSample(1.0)


def test_a_length_of_hundreds_of_digits_is_unknown() -> None:
    assert served_models({"data": [{"id": "m", "max_model_len": 10**400}]}) == (ServedModel("m"),)


def test_the_reference_engine_speaks_as_vllm_but_always_reports_cached_tokens() -> None:
    models = {"data": [{"id": "tiny", "owned_by": "prefixgate-reference", "max_model_len": 2048}]}
    assert recognise(models, text("vllm-0.32-metrics.txt")) is REFERENCE
    known = told(REFERENCE, models, text("vllm-0.32-metrics.txt"), {})
    assert (known.engine, known.block_size, known.reports_cached_tokens) == ("reference", 128, True)


@pytest.mark.parametrize(
    ("version", "engines", "ranks", "steered"),
    [
        ("0.32.0", "01", 2, True),
        ("0.32.0", "10", 2, True),
        ("0.12.0", "012", 3, True),
        ("0.11.2", "01", 2, False),
        (None, "01", 2, False),
        ("0.32.0", "0", 1, False),
        ("0.32.0", "23", 1, False),
    ],
)
def test_vllms_ranks_are_chosen_by_a_header_where_all_stand_behind_one_address(
    version: str | None, engines: str, ranks: int, *, steered: bool
) -> None:
    metrics = "\n".join(f'vllm:num_requests_running{{engine="{rank}",model_name="m"}} 1' for rank in engines)
    known = told(VLLM, {}, metrics, {} if version is None else {"version": version})
    assert known.ranks == ranks
    assert known.ranked_routes == (RANKED_ROUTES if steered else frozenset())


def test_vllms_cache_use_is_read_rank_by_rank_whatever_their_order() -> None:
    sample = read(VLLM, 'vllm:kv_cache_usage_perc{engine="1"} 0.75\nvllm:kv_cache_usage_perc{engine="0"} 0.25')
    assert (sample.kv_use, sample.rank_kv_use) == (0.5, (0.25, 0.75))
    other = read(VLLM, 'vllm:kv_cache_usage_perc{engine="1"} 0.75\nvllm:kv_cache_usage_perc{engine="2"} 0.25')
    assert (other.kv_use, other.rank_kv_use) == (0.5, ())


def test_sglang_says_on_its_information_page_how_many_ranks_it_has() -> None:
    known = told(SGLANG, {}, "", {"version": "0.5.23", "dp_size": 4})
    assert (known.ranks, known.ranked_routes) == (4, RANKED_ROUTES)
    older = told(SGLANG, {}, "", {"version": "0.5.9", "dp_size": 4})
    assert (older.ranks, older.ranked_routes) == (4, frozenset())


def test_llamacpp_is_told_and_reuses_single_tokens() -> None:
    models, props = page("llamacpp-models.json"), page("llamacpp-props.json")
    assert recognise(models) is LLAMACPP
    assert isinstance(props, dict)
    known = told(LLAMACPP, models, text("llamacpp-metrics.txt"), props)
    assert known.models == (ServedModel("smollm2", max_model_len=8192),)
    assert (known.block_size, known.capacity_tokens, known.reports_cached_tokens) == (1, 2 * 8192, True)
    assert not known.supports_cache_salt


def test_llamacpps_queries_are_cached_and_computed_tokens_together() -> None:
    sample = read(LLAMACPP, text("llamacpp-metrics.txt"))
    assert (sample.prefix_hits, sample.prefix_queries) == (16261.0, 16261.0 + 11732.0)
    assert (sample.running, sample.waiting, sample.kv_use, sample.started_at_s) == (0, 0, None, None)


def test_an_older_llamacpp_without_a_cached_counter_leaves_hits_unknown() -> None:
    sample = read(LLAMACPP, "llamacpp:prompt_tokens_total 10\nllamacpp:requests_processing 1\n")
    assert (sample.running, sample.prefix_hits, sample.prefix_queries) == (1, None, None)


def test_sglang_counts_each_rank_once_and_each_cached_token_once() -> None:
    assert read(SGLANG, SGLANG_PAGE) == LoadSample(
        1.0,
        running=7,
        waiting=1,
        kv_use=0.5,
        prefix_hits=400.0,
        prefix_queries=1000.0,
        steps=1000.0,
        rank_kv_use=(0.25, 0.75),
    )
    known = told(SGLANG, {}, SGLANG_PAGE, {"version": "0.5.23", "enable_cache_report": True})
    assert (known.block_size, known.capacity_blocks, known.version) == (64, 20, "0.5.23")
    assert known.reports_cached_tokens is True


@pytest.mark.parametrize(("info", "reported"), [({"enable_cache_report": False}, False), ({}, None)])
def test_sglangs_flag_for_cached_tokens_is_seen_on_its_information_page(
    info: dict[str, object], reported: bool | None
) -> None:
    known = told(SGLANG, {}, "", info)
    assert (known.reports_cached_tokens, known.cached_tokens_flag) == (reported, "--enable-cache-report")


def test_sglang_without_metrics_gives_its_cache_on_the_information_page() -> None:
    known = told(SGLANG, {}, "", {"page_size": 1, "max_total_num_tokens": 5000})
    assert (known.block_size, known.capacity_blocks) == (1, 5000)


def test_sglangs_middle_versions_carry_the_cache_in_labels() -> None:
    known = told(SGLANG, {}, 'sglang:cache_config_info{page_size="16",num_pages="10"} 1.0', {})
    assert (known.block_size, known.capacity_blocks) == (16, 10)


def test_trtllm_is_read_from_its_prometheus_page() -> None:
    assert recognise({"data": [{"id": "m", "owned_by": "tensorrt_llm"}]}) is TRTLLM
    assert read(TRTLLM, TRTLLM_PAGE) == LoadSample(
        1.0, running=2, waiting=5, kv_use=0.5, prefix_hits=320.0, prefix_queries=900.0, steps=900.0
    )
    known = told(TRTLLM, {}, TRTLLM_PAGE, {"version": "1.2.1"})
    assert (known.block_size, known.capacity_blocks, known.reports_cached_tokens) == (32, 100, True)
    assert TRTLLM.metrics_path == "/prometheus/metrics"


def test_tgi_is_told_by_its_metrics_and_never_reports_cached_tokens() -> None:
    models = {"data": [{"id": "org/model", "owned_by": "org/model"}]}
    assert recognise(models, TGI_PAGE) is TGI
    sample = read(TGI, TGI_PAGE)
    assert (sample.running, sample.waiting, sample.prefix_hits) == (2, 7, None)
    known = told(TGI, models, TGI_PAGE, {"version": "3.3.7", "max_total_tokens": 2048})
    assert known.models == (ServedModel("org/model", 2048),)
    assert (known.block_size, known.capacity_blocks, known.capacity_tokens) == (None, None, 4096)
    assert known.reports_cached_tokens is False


@pytest.mark.parametrize(
    "models", [{}, [], None, {"data": None}, {"data": ["x", {"id": 1}, {"owned_by": "me"}, {"owned_by": []}]}]
)
def test_anything_else_is_the_generic_dialect_of_which_nothing_is_known(models: object) -> None:
    assert recognise(models) is OPENAI
    assert facts(OPENAI, models, {}, {}) == EndpointFacts(
        engine="openai", features=features(OPENAI, cached_tokens=UNKNOWN), routes=OPENAI.routes
    )


def test_every_alias_and_adapter_is_a_model() -> None:
    models = {
        "data": [
            {"id": "base", "max_model_len": 10, "parent": None},
            {"id": "lora", "parent": "base"},
            {"id": "x", "aliases": ["x", "y", 3]},
        ]
    }
    assert served_models(models) == (
        ServedModel("base", 10),
        ServedModel("lora", None, "base"),
        ServedModel("x"),
        ServedModel("y"),
    )


@pytest.mark.parametrize("dialect", ENGINES, ids=lambda dialect: dialect.name)
def test_an_empty_or_broken_page_leaves_everything_unknown(dialect: Dialect) -> None:
    broken = "".join(f'{name}{{a="}} x\n{name}\n{name} \n' for name in names_read(dialect))
    for metrics in ("", broken, "\x00\xff"):
        assert read(dialect, metrics) == LoadSample(1.0)
    assert told(dialect, None, broken, {}).capacity_tokens is None


@pytest.mark.parametrize("dialect", ENGINES, ids=lambda dialect: dialect.name)
def test_every_engine_names_its_flag_where_cached_tokens_depend_on_one(dialect: Dialect) -> None:
    if facts(dialect, {}, {}, {}).cached_tokens_flag is not None:
        assert dialect.reports_cached_tokens is None


def test_a_page_of_vllms_full_size_is_scanned_without_holding_up_the_loop() -> None:
    metrics = text("vllm-0.32-metrics.txt")
    filler = "".join(f'vllm:request_seconds_bucket{{engine="0",le="{i}.0",model_name="m"}} {i}.0\n' for i in range(800))
    full = metrics + filler
    assert len(full) > 60_000
    best_s = min(_seconds_of_scan(full) for _ in range(5))
    assert best_s < 0.005


def _seconds_of_scan(metrics: str) -> float:
    """Of the processor: what else runs on the machine is not counted."""
    start = time.thread_time()
    scan(metrics, names_read(VLLM))
    return time.thread_time() - start


def test_what_is_no_name_is_no_model_and_no_version() -> None:
    """An engine's words are shown on terminals, and a client can ask for no model without a name."""
    names = ["", "a\x00b", "\x1b[31mred", "fine one", 5, None]
    page = {"data": [{"id": name, "aliases": [name, "also"]} for name in names]}
    assert [model.id for model in served_models(page)] == ["fine one", "also"]
    assert facts(OLLAMA, {"data": [{"id": ":latest"}]}, {}, {}).models == (ServedModel(":latest"),)
    for said in ("\x1b[31m0.32.0", "", 7):
        assert facts(VLLM, page, {}, {"version": said}).version is None
    assert facts(VLLM, page, {}, {"version": "9" * 5000}).version == "9" * 64
