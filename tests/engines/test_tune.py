"""`prefixgate tune` over engines that nobody here wrote: one that it starts, one that runs already."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from backends.reference.model_files import smollm2_gguf
from gateway.cli import cli
from tests.engines.servers import EngineServer, installed

pytestmark = [pytest.mark.engines, pytest.mark.timeout(1800)]

REST = """
load: {clients: 2, prompt: 64, output: 8, warm: 1, seconds: 4}
quality: {open_tokens: 16, again: 1}
"""
LLAMACPP = """
command: [BINARY, --model, MODEL, --port, "{port}", --parallel, "2", --cache-ram, "0", --flash-attn, "on",
          --ctx-size, "4096", --threads, "1", --poll, "0", --cache-type-k, "{kv}", --cache-type-v, "{kv}"]
grid: {kv: [f16, q4_0, no-such-type]}
"""


def tuned(folder: Path, text: str) -> list[dict[str, Any]]:
    path = folder / "sweep.yaml"
    path.write_text(text + REST)
    result = CliRunner().invoke(cli, ["tune", str(path), "--json"])
    assert result.exit_code == 0, result.output
    settings: list[dict[str, Any]] = json.loads(result.stdout)["settings"]
    return settings


def test_llamacpp_is_started_with_each_cache_type_and_a_coarser_one_reads_worse(tmp_path: Path) -> None:
    binary = installed("llamacpp/build/bin/llama-server")
    rows = tuned(tmp_path, LLAMACPP.replace("BINARY", str(binary)).replace("MODEL", str(smollm2_gguf())))
    fine, coarse, none = rows
    assert fine["quality"]["read_by"] == coarse["quality"]["read_by"] == "token by token"
    assert 5 < fine["quality"]["perplexity"] < 60
    assert coarse["quality"]["change"]["ratio"] > 1
    assert coarse["quality"]["agreement"]["equal"] < 1
    assert fine["quality"]["tasks"]["said"] > 4
    assert fine["memory_bytes"] > coarse["memory_bytes"] > 64 << 20
    assert fine["speed"]["output_tokens_per_s"] > 0
    assert "no-such-type" in none["failed"]
    assert none["speed"] is None


@pytest.mark.parametrize("engine", [("vllm", "tiny")], indirect=True)
def test_vllm_that_runs_already_tells_the_probabilities_of_a_prompt(engine: EngineServer, tmp_path: Path) -> None:
    [row] = tuned(tmp_path, f"url: {engine.url}\nsettings: [{{}}]\n")
    assert row["engine"] == "vllm"
    assert row["quality"]["read_by"] == "echo"
    assert row["quality"]["perplexity"] > 1000  # its weights are random
    assert row["quality"]["unit"] == "tokens"
    assert row["kv_tokens"] > 0
