"""`python -m backends.reference` as a process: ready line, signals, mistakes."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from backends.reference.__main__ import main, serve
from backends.reference.types import EngineConfig


@contextmanager
def process(*options: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "backends.reference", "--threads", "1", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        try:
            yield child
        finally:
            child.kill()


def test_the_command_serves_the_tiny_model_until_it_is_told_to_stop() -> None:
    processor = min(os.sched_getaffinity(0))
    options = ("--model", "tiny", "--port", "0", "--served-model-name", "small", "--kv-blocks", "99")
    with process(*options, "--cpu-affinity", str(processor)) as child:
        assert child.stdout is not None
        url = json.loads(child.stdout.readline())["url"]
        body = {"model": "small", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2, "ignore_eos": True}
        answer = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=30)
        assert answer.json()["usage"]["completion_tokens"] == 2
        assert 'num_gpu_blocks="99"' in httpx.get(f"{url}/metrics").text
        assert os.sched_getaffinity(child.pid) == {processor}
        # A stream that is open does not hold the process.
        with httpx.stream(
            "POST", f"{url}/v1/chat/completions", json=body | {"max_tokens": 1400, "stream": True}
        ) as stream:
            lines = stream.iter_lines()
            next(lines)
            child.send_signal(signal.SIGTERM)
            assert list(lines)[-2] == "data: [DONE]"
        assert child.wait(timeout=20) == 0
        assert child.stderr is not None
        assert child.stderr.read() == ""


def test_without_the_extra_the_command_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['torch'] = None; from backends.reference.__main__ import main; sys.exit(main([]))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.returncode == 1
    assert ended.stderr.startswith(
        "backends.reference: torch is not installed; in a checkout: pip install '.[reference]'"
    )
    assert len(ended.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("options", "mistake"),
    [
        (["--model", "/nowhere"], "not found"),
        (["--kv-blocks", "0"], "kv_blocks"),
        (["--kv-blocks", "1000000000000"], "no memory for a KV cache"),
        (["--threads", "0"], "threads must be at least 1"),
        (["--max-model-len", "-5"], "max_model_len must be at least 1"),
        (["--max-batched-tokens", "1"], "max_num_seqs"),
    ],
)
def test_mistakes_end_the_command_with_a_reason(
    options: list[str], mistake: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main([*options, "--port", "0"]) == 1
    assert mistake in capfd.readouterr().err


@pytest.mark.parametrize(
    ("options", "mistake"),
    [(["--port", "65536"], "65536 is no port"), (["--cpu-affinity", "9999"], "none of 9999 is a processor")],
)
def test_what_is_no_port_or_processor_is_refused(
    options: list[str], mistake: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(options)
    assert mistake in capfd.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_serving_even_at_the_very_start(number: signal.Signals) -> None:
    urls: list[str] = []

    def announce(url: str) -> None:
        urls.append(url)
        signal.raise_signal(number)

    await serve(EngineConfig(model="tiny", kv_blocks=8), "127.0.0.1", 0, announce)
    assert urls[0].startswith("http://127.0.0.1:")


def test_a_taken_port_is_a_reason_too(capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        options = ["--port", str(taken.getsockname()[1]), "--cpu-affinity", ",".join(map(str, os.sched_getaffinity(0)))]
        assert main(options) == 1
    assert "in use" in capfd.readouterr().err
