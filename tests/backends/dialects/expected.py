"""What is to be known of each server whose pages are here."""

from dataclasses import dataclass

from backends.features import Standing
from backends.types import ServedModel

ON, OFF, UNKNOWN, NEVER = Standing.ON, Standing.OFF, Standing.UNKNOWN, Standing.NEVER


@dataclass(frozen=True)
class Expected:
    """What is to be known of a server; `shape` is block size, capacity in tokens and slots; `load` running, waiting,
    use, hits and queries; `standings` in the order of `Feature`."""

    engine: str
    version: str | None
    models: tuple[ServedModel, ...]
    shape: tuple[int | None, int | None, int | None]
    load: tuple[float | None, ...] | None
    standings: tuple[Standing, ...]
    ranks: int = 1
    sources: int = 0


EXPECTED = {
    "vllm-0.32": Expected(
        "vllm",
        "0.32.0",
        (ServedModel("smollm2", 8192),),
        (128, 364 * 128, None),
        (0, 0, 0.0, 3584, 6681),
        (UNKNOWN, ON, ON, ON, UNKNOWN, UNKNOWN),
        sources=1,
    ),
    "vllm-0.8.5": Expected(
        "vllm",
        "0.8.5",
        (ServedModel("base", 4096), ServedModel("sql", None, "base")),
        (16, 16 * 2048, None),
        (2, 3, 0.25, 1024, 4096),
        (UNKNOWN, ON, UNKNOWN, ON, UNKNOWN, ON),
    ),
    "vllm-0.11-no-total": Expected(
        "vllm",
        "0.11.0",
        (ServedModel("base", 8192),),
        (16, None, None),
        (1, 0, 0.5, 0, 100),
        (UNKNOWN, ON, UNKNOWN, OFF, UNKNOWN, UNKNOWN),
    ),
    "sglang-0.5.23": Expected(
        "sglang",
        "0.5.23",
        (ServedModel("Qwen/Qwen3-8B", 40960), ServedModel("sql", None, "Qwen/Qwen3-8B")),
        (64, 2 * 65536, None),
        (7, 1, 0.5, 400, 1000),
        (ON, ON, ON, ON, OFF, ON),
        ranks=2,
        sources=2,
    ),
    "sglang-0.5.23-no-metrics": Expected(
        "sglang",
        "0.5.23",
        (ServedModel("Qwen/Qwen3-8B", 40960), ServedModel("sql", None, "Qwen/Qwen3-8B")),
        (64, 2 * 65536, None),
        (7, 1, 0.5, None, None),
        (OFF, OFF, OFF, OFF, ON, ON),
        ranks=2,
    ),
    "sglang-0.4.6": Expected(
        "sglang",
        "0.4.6.post5",
        (ServedModel("default", 8192),),
        (1, 50000, None),
        (1, 2, 0.1, 80, 200),
        (OFF, ON, UNKNOWN, ON, UNKNOWN, UNKNOWN),
    ),
    "trtllm-1.4": Expected(
        "trtllm",
        "1.4.0rc1",
        (ServedModel("llama"),),
        (32, 3200, None),
        (2, 5, 0.5, 320, 900),
        (ON, ON, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN),
    ),
    "trtllm-1.2-json": Expected(
        "trtllm",
        "1.2.1",
        (ServedModel("llama"),),
        (32, 3200, None),
        (2, 5, 0.25, None, None),
        (ON, OFF, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN),
    ),
    "triton-25": Expected(
        "triton",
        None,
        (ServedModel("ensemble"),),
        (64, 5120, None),
        (3, 1, 0.4875, None, None),
        (UNKNOWN, ON, NEVER, UNKNOWN, NEVER, NEVER),
    ),
    "llamacpp": Expected(
        "llamacpp",
        "b0-unknown",
        (ServedModel("smollm2", 8192),),
        (1, 16384, 2),
        (0, 0, None, 16261, 27993),
        (ON, ON, NEVER, UNKNOWN, NEVER, OFF),
    ),
    "llamacpp-no-metrics": Expected(
        "llamacpp",
        "b0-unknown",
        (ServedModel("smollm2", 8192),),
        (1, 16384, 2),
        (0, None, None, None, None),
        (ON, OFF, NEVER, UNKNOWN, NEVER, OFF),
    ),
    "tgi-3.3.7": Expected(
        "tgi",
        "3.3.7",
        (ServedModel("org/model", 2048),),
        (None, 4096, None),
        (2, 7, None, None, None),
        (NEVER, ON, NEVER, UNKNOWN, NEVER, UNKNOWN),
    ),
    "ollama-0.14": Expected(
        "ollama",
        "0.14.2",
        (
            ServedModel("llama3.2:latest", 4096),
            ServedModel("llama3.2", 4096, alias_of="llama3.2:latest"),
            ServedModel("mattw/pygmalion:7b"),
            ServedModel("qwen3:0.6b"),
        ),
        (None, None, None),
        (None,) * 5,
        (NEVER, NEVER, NEVER, UNKNOWN, NEVER, NEVER),
    ),
    "ollama-0.5": Expected(
        "ollama",
        "0.5.7",
        (
            ServedModel("llama3.2:latest"),
            ServedModel("llama3.2", alias_of="llama3.2:latest"),
            ServedModel("mattw/pygmalion:7b"),
            ServedModel("qwen3:0.6b"),
        ),
        (None, None, None),
        (None,) * 5,
        (NEVER, NEVER, NEVER, UNKNOWN, NEVER, NEVER),
    ),
}
