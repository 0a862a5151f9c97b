"""Engines that answer what is no answer, start what they do not end, say too much: a reason, and nothing raised."""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from gateway.tuning.asking import Asked, Examination, examine
from gateway.tuning.engine import Command, free_port, running, shorten
from gateway.tuning.errors import SettingFailed
from gateway.tuning.judging import change, perplexity
from gateway.tuning.pages import legible
from gateway.tuning.questions import Question
from gateway.tuning.types import Quality, Reading

CHAT = {"choices": [{"message": {"content": "Paris"}}]}
QUESTION = Question("Capital of France?", ("Paris",), 4)
FORKS = """
import subprocess, sys
from http.server import HTTPServer, BaseHTTPRequestHandler as Base
child = subprocess.Popen(["sleep", "600"], process_group=0)
open(sys.argv[2], "w").write(str(child.pid))
Base.do_GET = lambda self: (self.send_response(200), self.end_headers())
HTTPServer(("127.0.0.1", int(sys.argv[1])), Base).serve_forever()
"""


async def examined(pages: dict[str, object], text: str = "one two", asks: bool = True) -> Quality:
    """By an engine that answers with these pages, 404 for other routes; what is text is said as it is."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if b"content-length" in line)
        await reader.readexactly(length)
        page = pages.get(head.split()[1].decode())
        said = (page if isinstance(page, str) else json.dumps(page)).encode()
        status = 404 if page is None else 200
        writer.write(b"HTTP/1.1 %d X\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % (status, len(said)) + said)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        return await examine(Asked(url, "m"), Examination(text, [QUESTION] if asks else [], 0))


@pytest.mark.parametrize(
    "page",
    [
        '{"choices": [{"logprobs": {"token_logprobs": [null, NaN]}}], "usage": {"prompt_tokens": 2}}',
        '{"choices": [{"logprobs": {"token_logprobs": [null, -Infinity]}}], "usage": {"prompt_tokens": 2}}',
        '{"choices": [{"logprobs": {"token_logprobs": [null, 5.0]}}], "usage": {"prompt_tokens": 2}}',
        '{"choices": [{"logprobs": [1, 2]}], "usage": {"prompt_tokens": 2}}',
        '{"choices": [{"logprobs": {"token_logprobs": [null, -1]}}], "usage": {"prompt_tokens": "2"}}',
        '{"choices": [{"prompt_logprobs": [null, {"5": [1]}]}]}',
        '{"choices": {"a": 1}}',
        "[" * 100_000,
    ],
)
async def test_probabilities_that_are_none_are_not_told(page: str) -> None:
    found = await examined({"/v1/chat/completions": CHAT, "/v1/completions": page})
    assert found.reading is None
    assert found.unread is not None


@pytest.mark.parametrize("told", [{"a": 1}, [], ["x"], [{"id": 2}], [{"id": 2, "logprob": None}], None])
async def test_a_forced_token_that_is_none_is_not_told(told: object) -> None:
    pages = {"/tokenize": {"tokens": [1, 2]}, "/completion": {"completion_probabilities": told}}
    assert (await examined({"/v1/chat/completions": CHAT, **pages})).reading is None


@pytest.mark.parametrize(
    "page",
    [
        {"choices": [{"message": ["x"]}]},
        {"choices": [{"message": "x"}]},
        {"choices": [{"message": None}]},
        {"choices": [{**CHAT["choices"][0], "token_ids": [{"a": 1}]}]},
        {"choices": [{**CHAT["choices"][0], "token_ids": [1.5]}]},
        {"choices": []},
        [1, 2],
        "<html>",
    ],
)
async def test_an_answer_that_is_none_is_the_reason(page: object) -> None:
    with pytest.raises(SettingFailed, match="a question was answered with status 200: "):
        await examined({"/v1/chat/completions": page})


async def test_content_in_parts_and_half_a_letter_are_read() -> None:
    parts = {"choices": [{"message": {"content": [{"type": "text", "text": "Pa"}, {"type": "text", "text": "ris"}]}}]}
    found = await examined({"/v1/chat/completions": parts})
    assert found.tasks is not None
    assert found.tasks.exact == 1
    half = '{"choices": [{"message": {"content": "Paris \\ud83d"}}]}'
    assert (await examined({"/v1/chat/completions": half})).answers[0].tokens == ["Paris", "\ufffd"]


async def test_a_setting_of_which_nothing_can_be_told_is_a_row_with_the_reason() -> None:
    with pytest.raises(SettingFailed, match="nothing tells its quality"):
        await examined({}, asks=False)


def test_a_text_without_any_chance_has_no_perplexity() -> None:
    clamped = Reading([-9999.0, -9999.0], 8, "echo")
    assert perplexity(clamped) is None
    assert change(Reading([-1.0, -1.0], 8, "echo"), clamped) is None


async def test_what_an_engine_started_ends_with_it_in_a_group_of_its_own_too(tmp_path: Path) -> None:
    port, child = free_port(), tmp_path / "child"
    words = [sys.executable, "-c", FORKS, str(port), str(child)]
    command = Command(words, os.environ, f"http://127.0.0.1:{port}", 60.0)
    async with running(command, tmp_path / "log"):
        process = int(child.read_text())
        assert Path(f"/proc/{process}").exists()
    async with asyncio.timeout(60):
        while _runs(process):
            await asyncio.sleep(0.01)


def _runs(process: int) -> bool:
    """Whether it does: one that has ended stays on the list until somebody asks for it."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_a_health_page_without_an_end_is_an_answer(tmp_path: Path) -> None:
    endless = FORKS.replace(
        "self.end_headers())", "self.end_headers(), [self.wfile.write(bytes(9999)) for _ in [0] * 10**9])"
    )
    port = free_port()
    words = [sys.executable, "-c", endless, str(port), str(tmp_path / "child")]
    async with (
        asyncio.timeout(60),
        running(Command(words, os.environ, f"http://127.0.0.1:{port}", 60.0), tmp_path / "log"),
    ):
        pass


def test_a_log_keeps_its_last_words_alone(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("ab", buffering=0) as engine:
        engine.write(b"x" * (20 << 20) + b"\nerror: no memory\n")
        shorten(log)
        assert log.stat().st_size < 10_000
        engine.write(b"bye\n")
    assert log.read_bytes().endswith(b"error: no memory\nbye\n")
    shorten(tmp_path / "none")


def test_what_an_engine_said_does_not_steer_a_terminal() -> None:
    assert legible("\x1b[31mERROR\x1b[0m\a 1 \x1b]0;title\x07") == "ERROR  1  ]0;title"
