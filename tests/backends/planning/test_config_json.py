"""Models by the file that they are published with: the catalogue's come out as they stand in it."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.config_json import FAMILIES, ModelUnreadable, model_of_config, rounded_by, sees_more_than_text
from backends.models import CATALOGUE, Experts, Latent, Layers, PerHead
from tests.backends.planning.published_configs import GEMMA_3_27B, PUBLISHED, llama, qwen


def test_every_model_of_the_catalogue_is_here() -> None:
    assert set(PUBLISHED) == set(CATALOGUE)


@pytest.mark.parametrize("name", CATALOGUE)
def test_a_model_of_the_catalogue_comes_out_of_its_own_file(name: str) -> None:
    known, read = CATALOGUE[name], model_of_config(PUBLISHED[name], name)
    assert read == replace(known, params=read.params, active_params=read.active_params)
    assert read.params == pytest.approx(known.params, rel=0.01)
    vocabulary, hidden = PUBLISHED[name]["vocab_size"], PUBLISHED[name]["hidden_size"]
    assert isinstance(vocabulary, int)
    assert isinstance(hidden, int)
    left_out = vocabulary * hidden if name.startswith("gpt-oss") else 0
    assert read.active_params - left_out == pytest.approx(known.active_params, rel=0.02)


def test_of_a_model_that_sees_pictures_the_part_that_reads_and_writes_is_counted() -> None:
    read = model_of_config(GEMMA_3_27B, "gemma-3-27b")
    assert sees_more_than_text(GEMMA_3_27B)
    assert not sees_more_than_text(PUBLISHED["llama-3.1-8b"])
    assert read.params == pytest.approx(27.0e9, rel=0.01)
    assert read.layers == (Layers(10), Layers(52, 1024))
    assert read.cached == PerHead(16, 128)


@pytest.mark.parametrize(
    ("config", "layers"),
    [
        (llama(32, 4096, 14_336, 32, 8, model_type="mistral", sliding_window=4096), (Layers(32, 4096),)),
        (llama(32, 4096, 14_336, 32, 8, model_type="mistral", sliding_window=None), (Layers(32),)),
        (
            llama(42, 3584, 14_336, 16, 8, model_type="gemma2", head_dim=256, sliding_window=4096),
            (Layers(21), Layers(21, 4096)),
        ),
        (
            {**qwen("qwen2", 28, 3584, 18_944, 28, 4), "use_sliding_window": True, "max_window_layers": 21},
            (Layers(21), Layers(7, 131_072)),
        ),
        (
            llama(
                3,
                64,
                128,
                4,
                2,
                layer_types=["full_attention", "sliding_attention", "full_attention"],
                sliding_window=8,
            ),
            (Layers(2), Layers(1, 8)),
        ),
        (llama(2, 64, 128, 4, 2, layer_types=["full_attention"] * 2, sliding_window=None), (Layers(2),)),
    ],
    ids=["mistral", "mistral, none", "gemma2", "qwen2, the last", "by name", "by name, none"],
)
def test_windows_are_where_the_family_has_them(config: Mapping[str, object], layers: tuple[Layers, ...]) -> None:
    assert model_of_config(config, "m").layers == layers


def test_experts_are_only_in_the_layers_that_have_some() -> None:
    """Two of four layers, three experts each of 3 × 8 × 4, and a shared one of 3 × 8 × 5."""
    config = llama(
        *(4, 8, 16, 2, 1),
        model_type="qwen2_moe",
        num_experts=3,
        num_experts_per_tok=1,
        moe_intermediate_size=4,
        shared_expert_intermediate_size=5,
        decoder_sparse_step=2,
        mlp_only_layers=[],
        vocab_size=10,
    )
    read = model_of_config(config, "m")
    attention, dense, expert, shared, router = 2 * 8 * 8 + 2 * 8 * 4, 3 * 8 * 16, 3 * 8 * 4, 3 * 8 * 5, 8 * 3
    assert read.params == 2 * 10 * 8 + 4 * attention + 2 * dense + 2 * (3 * expert + shared + router)
    assert read.params - read.active_params == 2 * 2 * expert
    assert read.experts == Experts(3, 1)
    assert model_of_config({**config, "mlp_only_layers": [1, 3]}, "m").experts is None
    assert model_of_config({**config, "num_experts_per_tok": 3}, "m").experts is None


def test_experts_are_counted_by_any_of_their_names() -> None:
    """Qwen3's files say `num_experts`, and `num_local_experts` where a later version of the same class wrote them."""
    config = dict(PUBLISHED["qwen3-235b-a22b"])
    renamed = {**config, "num_local_experts": config.pop("num_experts")}
    del renamed["num_experts"]
    assert model_of_config(renamed, "m") == model_of_config(PUBLISHED["qwen3-235b-a22b"], "m")


def test_queries_of_latent_attention_need_no_rank() -> None:
    config = {**PUBLISHED["deepseek-v2"], "num_attention_heads": 16, "q_lora_rank": None, "hidden_size": 2048}
    read = model_of_config(config, "m")
    assert read.cached == Latent(512, 64)
    with_rank = model_of_config({**config, "q_lora_rank": 1536}, "m")
    assert read.params - with_rank.params == 60 * (2048 * 16 * 192 - (2048 * 1536 + 1536 * 16 * 192))


def test_a_file_says_how_its_weights_were_rounded() -> None:
    assert rounded_by(PUBLISHED["deepseek-v3"]) == "fp8"
    assert rounded_by({"text_config": {"quantization_config": {}}}) == "a method without a name"
    assert rounded_by(PUBLISHED["llama-3.1-8b"]) is None


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"model_type": "mamba"}, "model_type"),
        ({"model_type": None}, "model_type"),
        ({"hidden_size": None}, "hidden_size"),
        ({"hidden_size": 4096.0}, "hidden_size"),
        ({"hidden_size": True}, "hidden_size"),
        ({"hidden_size": 4100}, "head_dim"),
        ({"num_hidden_layers": 0}, "num_hidden_layers"),
        ({"num_hidden_layers": 10**6}, "num_hidden_layers"),
        ({"num_key_value_heads": 5}, "num_key_value_heads"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings"),
        ({"sliding_window": 4096}, "sliding_window"),
        ({"layer_types": ["full_attention"]}, "layer_types"),
        ({"layer_types": ["linear_attention"] * 32}, "layer_types"),
        ({"layer_types": ["sliding_attention"] * 32}, "sliding_window"),
        ({"model_type": "mistral"}, "sliding_window"),
        ({"model_type": "qwen3"}, "head_dim"),
        ({"model_type": "gemma3_text", "head_dim": 128, "sliding_window": 1024}, "sliding_window_pattern"),
        ({"model_type": "mixtral"}, "num_local_experts"),
        ({"model_type": "mixtral", "num_local_experts": 8}, "num_experts_per_tok"),
        ({"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 9}, "num_experts_per_tok"),
        ({"model_type": "qwen3_moe", "num_experts": 8, "mlp_only_layers": 3}, "mlp_only_layers"),
        ({"model_type": "deepseek_v3"}, "n_routed_experts"),
    ],
)
def test_what_the_file_does_not_tell_is_refused_by_its_name(changed: Mapping[str, object], field: str) -> None:
    with pytest.raises(ModelUnreadable) as refused:
        model_of_config({**llama(32, 4096, 14_336, 32, 8), **changed}, "m")
    assert refused.value.field == field
    assert str(refused.value).startswith(field)


def test_without_a_number_of_kv_heads_only_some_families_mean_one_for_each_head() -> None:
    config = llama(32, 4096, 14_336, 32, 8)
    del config["num_key_value_heads"]
    assert model_of_config(config, "m").cached == PerHead(32, 128)
    with pytest.raises(ModelUnreadable, match="num_key_value_heads: not in the file"):
        model_of_config({**config, "model_type": "mistral", "sliding_window": None}, "m")


values = (
    st.none() | st.booleans() | st.integers(-2, 300) | st.floats() | st.text(max_size=3) | st.lists(st.integers(0, 3))
)
fields = st.sampled_from(sorted({name for config in PUBLISHED.values() for name in config}))


@given(
    st.sampled_from(sorted(PUBLISHED)), st.sampled_from(sorted(FAMILIES)), st.dictionaries(fields, values, max_size=4)
)
def test_whatever_stands_there_is_read_or_refused(name: str, family: str, changed: dict[str, object]) -> None:
    try:
        read = model_of_config({**PUBLISHED[name], "model_type": family, **changed}, "m")
    except ModelUnreadable:
        return
    assert 0 < read.active_params <= read.params
    assert sum(one.count for one in read.layers) == read.layer_count > 0
