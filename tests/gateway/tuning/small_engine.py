"""An engine of a few lines that starts in a tenth of a second: python small_engine.py PORT KIND [how it fails].

KIND says how it tells probabilities: `echo`, `prompt_logprobs`, `forced` (as llama.cpp does), or `none`. Its answers
are the letters of the question, turned by `--shift`, so that two of them can be told apart. It dies when a route is
asked (`--dies-at`), is never ready, lists no model or none at all, refuses streams or all questions, is slow, or hangs
up: the options below.
"""

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PROBABILITY = 0.25
SLOW_TOKENS = 4
"""Of answers to the load of the tests; those of other lengths are quick."""


def logprob(token: int) -> float:
    """Of any token that is none of the first."""
    return math.log(PROBABILITY) - (token % 3) * 0.01


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    options: argparse.Namespace

    def log_message(self, *_: object) -> None:
        """Nothing is said."""

    def do_GET(self) -> None:
        if self.path == "/health":
            return self.answer({"status": "ok"}, 200 if not self.options.never_ready else 503)
        if self.path == "/v1/models" and not self.options.no_models:
            return self.answer({"data": [] if self.options.empty_models else [{"id": "small"}]})
        return self.answer({"error": "no such page"}, 404)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path == self.options.dies_at:
            sys.stderr.write("out of blocks\n")
            sys.stderr.flush()
            os._exit(7)
        routes = {
            "/v1/chat/completions": self.chat,
            "/v1/completions": self.complete,
            "/completion": self.forced,
            "/tokenize": self.tokenize,
        }
        if self.path not in routes:
            return self.answer({"error": "no such route"}, 404)
        return routes[self.path](body)

    def chat(self, body: dict[str, Any]) -> None:
        if self.options.mute:
            return self.answer({"error": "no"}, 500)
        if self.options.hangs_up:
            self.close_connection = True
            return None
        if self.options.no_stream and body.get("stream"):
            return self.answer({"error": "no streams"}, 501)
        said = body["messages"][0]["content"]
        tokens = [(ord(letter) + self.options.shift) % 97 for letter in said[: body["max_tokens"]]]
        usage = {"prompt_tokens": len(said.split()), "completion_tokens": len(tokens), "total_tokens": 0}
        if not body.get("stream"):
            choice = {"message": {"content": "Paris."}, "finish_reason": "stop"}
            if self.options.kind != "forced":
                choice["token_ids"] = tokens
            return self.answer({"choices": [choice], "usage": usage})
        if self.options.slow and body["max_tokens"] == SLOW_TOKENS:
            time.sleep(1)
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for event in self.events(tokens, usage):
            self.wfile.write(event)
            self.wfile.flush()
        self.close_connection = True
        return None

    def events(self, tokens: list[int], usage: dict[str, int]) -> Iterator[bytes]:
        for at, token in enumerate(tokens):
            reason = "length" if at == len(tokens) - 1 else None
            piece = {"choices": [{"index": 0, "delta": {"content": f"w{token} "}, "finish_reason": reason}]}
            yield b"data: " + json.dumps(piece).encode() + b"\n\n"
        yield b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\n"
        yield b"data: [DONE]\n\n"

    def complete(self, body: dict[str, Any]) -> None:
        words = body["prompt"].split()
        logprobs: list[float | None] = [None, *(logprob(at) for at in range(1, len(words)))]
        choice: dict[str, object] = {"text": "x", "logprobs": None}
        if body.get("echo"):
            if self.options.kind != "echo":
                return self.answer({"error": {"message": "Only no echo is supported"}}, 400)
            choice["logprobs"] = {"token_logprobs": [*logprobs, -0.5]}
        if "prompt_logprobs" in body and self.options.kind == "prompt_logprobs":
            told = [None if one is None else {str(at): {"logprob": one}} for at, one in enumerate(logprobs)]
            choice["prompt_logprobs"] = told
        return self.answer({"choices": [choice], "usage": {"prompt_tokens": len(words), "completion_tokens": 1}})

    def forced(self, body: dict[str, Any]) -> None:
        if self.options.kind != "forced":
            return self.answer({"error": "no such route"}, 404)
        [[token, _]] = body["logit_bias"]
        return self.answer({"completion_probabilities": [{"id": token, "logprob": logprob(len(body["prompt"]))}]})

    def tokenize(self, body: dict[str, Any]) -> None:
        if self.options.kind == "none":
            return self.answer({"error": "no such route"}, 404)
        return self.answer({"tokens": [len(word) for word in body["content"].split()]})

    def answer(self, page: dict[str, Any], status: int = 200) -> None:
        encoded = json.dumps(page).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(encoded)))
        self.end_headers()
        self.wfile.write(encoded)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("kind", choices=["echo", "prompt_logprobs", "forced", "none"])
    parser.add_argument("--dies-at")
    parser.add_argument("--never-ready", action="store_true")
    for flag in ("no-models", "empty-models", "no-stream", "mute", "slow", "hangs-up"):
        parser.add_argument(f"--{flag}", action="store_true")
    parser.add_argument("--shift", type=int, default=0)
    Handler.options = parser.parse_args()
    ThreadingHTTPServer(("127.0.0.1", Handler.options.port), Handler).serve_forever()
