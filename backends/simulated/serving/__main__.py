"""`python -m backends.simulated.serving`: one simulated engine in a process of its own.

Prints one JSON line, `{"url": ..., "control_url": ...}`, on standard output when it accepts connections. SIGTERM and
SIGINT end it at once; a fault that kills it kills the process, as SIGKILL does.
"""

import argparse
import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from backends.disaggregated import Role
from backends.simulated.presets import PRESETS
from backends.simulated.serving.faces import FACES
from backends.simulated.serving.server import bind, serve
from backends.simulated.serving.site import Site
from backends.simulated.serving.types import ServerSpec
from backends.simulated.types import EngineSpec


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the server; returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        spec = _spec(options)
        faults = msgspec.json.decode(options.faults, type=dict[str, object])
        asyncio.run(_serve(spec, faults))
    except (OSError, ValueError) as error:
        sys.stderr.write(f"backends.simulated.serving: {error}\n")
        return 1
    return 0


async def _serve(spec: ServerSpec, faults: dict[str, object]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    site = Site(spec, lambda: os.kill(os.getpid(), signal.SIGKILL))
    site.change(**faults)
    listener = bind(spec.host, spec.port)
    control = None if spec.control_port is None else bind(spec.host, spec.control_port)
    told = {"url": _url(listener), "control_url": None if control is None else _url(control)}

    def announce() -> None:
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()

    await serve(site, listener, control, announce, stop)


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://{host}:{port}"


def _spec(options: argparse.Namespace) -> ServerSpec:
    return ServerSpec(
        dialect=options.dialect,
        version=options.version,
        model=options.model,
        aliases=tuple(options.alias),
        engine=_engine(options),
        speed=options.speed,
        ranks=options.ranks,
        max_model_len=options.max_model_len,
        max_queued=options.max_queued,
        api_key=options.api_key,
        reports_cached_tokens=not options.no_cached_tokens,
        has_metrics=not options.no_metrics,
        adapters=tuple(options.adapter),
        max_adapters=options.max_adapters,
        adapter_load_s=options.adapter_load_seconds,
        tokenizer=options.tokenizer,
        role=Role(options.role),
        lease_s=options.lease_seconds,
        side_port=options.side_port,
        host=options.host,
        port=options.port,
        control_port=options.control_port,
    )


def _engine(options: argparse.Namespace) -> EngineSpec:
    usual = FACES[options.dialect].engine
    if options.preset is not None:
        preset = PRESETS[options.preset]
        tokens = preset.capacity_blocks * preset.block_size
        usual = replace(preset, block_size=usual.block_size, capacity_blocks=tokens // usual.block_size)
    asked = {
        "block_size": options.block_size,
        "capacity_blocks": options.blocks,
        "max_running": options.max_running,
    }
    return replace(usual, **{name: value for name, value in asked.items() if value is not None})


def _parser() -> argparse.ArgumentParser:
    defaults = ServerSpec()
    parser = argparse.ArgumentParser(
        prog="python -m backends.simulated.serving", description="A model server that computes nothing, strictly."
    )
    add = parser.add_argument
    add("--dialect", choices=list(FACES), default=defaults.dialect, help="default: %(default)s")
    add("--version", help="of the engine, where its face depends on it (vllm: 0.23.0 or 0.32.0)")
    add("--model", default=defaults.model, help="default: %(default)s")
    add("--alias", action="append", default=[], help="another name of the model; may be repeated")
    add("--preset", choices=list(PRESETS), help="memory and speed of a machine (default: what is usual)")
    add("--block-size", type=int, help="tokens a block (default: the dialect's)")
    add("--blocks", type=int, help="KV cache capacity, in blocks")
    add("--max-running", type=int, help="requests in a batch, or slots")
    add("--speed", type=float, default=1.0, help="seconds of the engine in one (default: %(default)s)")
    add("--ranks", type=int, default=1, help="data-parallel ranks (default: %(default)s)")
    add("--max-model-len", type=int, default=defaults.max_model_len, help="default: %(default)s")
    add("--max-queued", type=int, help="requests that wait, at most (default: no bound)")
    add("--api-key", help="key that is required")
    add("--no-cached-tokens", action="store_true", help="without the flag that reports cached tokens")
    add("--no-metrics", action="store_true", help="without a metrics page")
    add("--adapter", action="append", default=[], help="a LoRA adapter; may be repeated")
    add("--max-adapters", type=int, default=defaults.max_adapters, help="resident at a time (default: %(default)s)")
    add("--adapter-load-seconds", type=float, default=defaults.adapter_load_s, help="default: %(default)s")
    add("--tokenizer", type=Path, metavar="DIRECTORY", help="tokens and template of a model (default: words)")
    add("--role", choices=[str(role) for role in Role], default=str(defaults.role), help="default: %(default)s")
    add("--lease-seconds", type=float, default=defaults.lease_s, help="default: %(default)s")
    add("--side-port", type=int, default=0, help="where prompts are fetched: SGLang's bootstrap port (default: any)")
    add("--host", default=defaults.host, help="default: %(default)s")
    add("--port", type=int, default=0, help="0 takes a free one (default: %(default)s)")
    add("--control-port", type=int, help="where faults are switched on; 0 takes a free one (default: nowhere)")
    add("--faults", default="{}", metavar="JSON", help="what is switched on from the beginning")
    return parser


if __name__ == "__main__":
    sys.exit(main())
