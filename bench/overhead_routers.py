"""Whom `make bench-overhead` measures: how each is started on one core in front of two engines, as its manual says.

The Rust routers write a line a request at their default level, which costs them half their speed: they run at `error`.
Ours runs with everything on (bench/overhead_gateway.py).
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.overhead_backend import proxy
from bench.overhead_prompts import MODEL
from bench.peer import peer_python

HOST: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Site:
    """Where a router is to stand: a new folder for it, two free ports, and the ports of the engines."""

    home: Path
    port: int
    metrics_port: int
    engines: Sequence[int]

    @property
    def engine_urls(self) -> list[str]:
        """Addresses of the engines."""
        return [f"http://{HOST}:{port}" for port in self.engines]


@dataclass(frozen=True, slots=True)
class Router:
    """A row of the table. `command` writes what it needs into the site's folder; `environment` is set beside ours."""

    name: str
    policy: str
    command: Callable[[Site], Sequence[str]]
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Name and policy."""
        return f"{self.name} {self.policy}".strip()


NGINX: Final = Router("nginx", "", lambda site: proxy(site.home / "nginx", site.port, site.engines).command)


def peers() -> tuple[Router, ...]:
    """All of other people's, slowest last."""
    return (
        NGINX,
        *(Router("SMG", policy, _rust("smg", "bin/smg", "launch", policy=policy)) for policy in _POLICIES),
        *(
            Router("vllm-router", policy, _rust("vllm-router", "bin/vllm-router", policy=policy))
            for policy in _POLICIES
        ),
        Router(
            "sglang-router",
            "cache_aware",
            _rust("sglang-router", "bin/python", "-m", "sglang_router.launch_router", policy="cache_aware"),
        ),
        Router("LiteLLM", "simple-shuffle", _litellm, _LITELLM_ENVIRONMENT),
    )


_POLICIES: Final = ("round_robin", "cache_aware")


def _rust(peer: str, program: str, *arguments: str, policy: str) -> Callable[[Site], Sequence[str]]:
    """The three Rust routers take the same flags."""

    def command(site: Site) -> Sequence[str]:
        flags = ("--host", HOST, "--port", str(site.port), "--policy", policy)
        quiet = ("--prometheus-port", str(site.metrics_port), "--log-level", "error")
        return (str(_home(peer) / program), *arguments, *flags, *quiet, "--worker-urls", *site.engine_urls)

    return command


_LITELLM_ENVIRONMENT: Final = {
    "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOG": "ERROR",
}


def _litellm(site: Site) -> Sequence[str]:
    """Its configuration is YAML, which JSON is."""
    models = [
        {
            "model_name": MODEL,
            "litellm_params": {"model": f"openai/{MODEL}", "api_base": f"{url}/v1", "api_key": "none"},
        }
        for url in site.engine_urls
    ]
    config = site.home / "litellm.yaml"
    config.write_text(json.dumps({"model_list": models}))
    return (
        str(_home("litellm") / "bin" / "litellm"),
        "--config",
        str(config),
        "--host",
        HOST,
        "--port",
        str(site.port),
    )


def _home(peer: str) -> Path:
    """The environment of a peer, which is made where there is none. Raises `PeerNotInstalled`."""
    return peer_python(peer).parent.parent
