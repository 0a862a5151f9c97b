"""Engines that cost nothing: one nginx on two ports, and nginx as the plain proxy that routers are held against.

    wrk ──> router ──> :port A, :port B     reads the request, answers by the length of its body
                         └─ from a cache; the answers come into it over a socket from the same process, once

An answer that is returned without reading the body comes before the client has sent all of 400 KB; no engine does that.
nginx reads it where it proxies, and what it proxies to is a cache. /health, /v1/models, /version, /metrics and
SGLang's pages say what a vLLM would that has one model and room for 1.6 M tokens.
"""

import json
import os
import pwd
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.overhead_prompts import BLOCK_SIZE, MODEL, Ask

CAPACITY_BLOCKS: Final = 100_000
_MODELS: Final = {
    "object": "list",
    "data": [{"id": MODEL, "object": "model", "created": 1795961218, "owned_by": "vllm", "max_model_len": 1 << 20}],
}
_METRICS: Final = f"""\
vllm:num_requests_running{{model_name="{MODEL}"}} 0
vllm:num_requests_waiting{{model_name="{MODEL}"}} 0
vllm:kv_cache_usage_perc{{model_name="{MODEL}"}} 0.1
vllm:cache_config_info{{block_size="{BLOCK_SIZE}",num_gpu_blocks="{CAPACITY_BLOCKS}"}} 1
process_start_time_seconds 1795961218.5
"""
_PAGES: Final = {
    "/health": "{}",
    "/v1/models": json.dumps(_MODELS),
    "/version": json.dumps({"version": "0.33.0"}),
    "/get_model_info": json.dumps({"model_path": MODEL, "is_generation": True}),
    "/get_server_info": json.dumps({"model_path": MODEL, "version": "0.33.0"}),
    "/model_info": json.dumps({"model_path": MODEL, "is_generation": True}),
    "/server_info": json.dumps({"model_path": MODEL, "version": "0.33.0"}),
}


class ToolMissing(Exception):
    """A program that must be installed first; the text says how."""


@dataclass(frozen=True, slots=True)
class Nginx:
    """A configuration in a folder of its own, and the command that runs it."""

    home: Path
    command: Sequence[str]


def backend(home: Path, ports: Sequence[int], asks: Sequence[Ask]) -> Nginx:
    """Engines on these ports that answer what is asked. Raises `ToolMissing`."""
    socket = f"{home}/answers.sock"
    lengths = "".join(f"    ~^{_digits(ask)}$ '{_quoted(ask.answer())}';\n" for ask in asks)
    pages = "".join(
        f"    location = {path} {{ default_type application/json; return 200 '{body}'; }}\n"
        for path, body in _PAGES.items()
    )
    pages += f"    location = /metrics {{ default_type text/plain; return 200 '{_METRICS}'; }}\n"
    http = f"""
  proxy_cache_path {home}/cache keys_zone=answers:1m;
  open_file_cache max=16;
  map $content_length $answer {{
{lengths}    default '{_quoted(asks[0].answer())}';
  }}
  server {{
    listen unix:{socket};
    default_type application/json;
    return 200 $answer;
  }}
  server {{
    {" ".join(f"listen 127.0.0.1:{port};" for port in ports)}
{pages}    location = /v1/chat/completions {{
      proxy_pass http://unix:{socket}:/;
      proxy_cache answers;
      proxy_cache_methods POST;
      proxy_cache_key $answer;
      proxy_cache_valid 200 1d;
    }}
  }}"""
    return _nginx(home, http)


def proxy(home: Path, port: int, engines: Sequence[int]) -> Nginx:
    """A plain reverse proxy in turns, with connections kept open on both sides. Raises `ToolMissing`."""
    servers = " ".join(f"server 127.0.0.1:{engine};" for engine in engines)
    http = f"""
  upstream engines {{ {servers} keepalive 128; keepalive_requests 100000000; keepalive_timeout 3600s; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{ proxy_pass http://engines; proxy_http_version 1.1; proxy_set_header Connection ""; }}
  }}"""
    return _nginx(home, http)


def program(name: str, package: str) -> str:
    """Where a program is. Raises `ToolMissing`."""
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
    if found is None:
        raise ToolMissing(f"{name} is not installed; on Debian: apt-get install {package}")
    return found


def _nginx(home: Path, http: str) -> Nginx:
    binary = program("nginx", "nginx-light")
    home.mkdir(parents=True)
    places = "".join(f"  {kind}_temp_path {home}/{kind};\n" for kind in ("client_body", *_UNUSED))
    user = f"user {pwd.getpwuid(0).pw_name};\n" if os.geteuid() == 0 else ""
    config = home / "nginx.conf"
    config.write_text(f"""{user}worker_processes 1;
daemon off;
pid {home}/pid;
error_log stderr notice;  # who sent a signal stands there
events {{ worker_connections 4096; }}
http {{
{places}  access_log off;
  client_max_body_size 16m;
  client_body_buffer_size 1m;
  keepalive_requests 100000000;
  keepalive_timeout 3600s;
{http}
}}
""")
    return Nginx(home, (binary, "-e", "stderr", "-p", str(home), "-c", str(config)))


_UNUSED: Final = ("proxy", "fastcgi", "uwsgi", "scgi")


def _digits(ask: Ask) -> str:
    """A pattern for the length of its bodies: routers add and drop fields, but not so much that a digit changes."""
    return r"\d" * len(str(len(ask.body(0))))


def _quoted(answer: object) -> str:
    text = json.dumps(answer, separators=(",", ":"))
    assert "'" not in text
    assert "$" not in text
    return text
