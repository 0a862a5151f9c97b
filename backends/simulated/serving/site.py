"""One life of a server: the engine, its clock, what is loaded, what goes wrong. It ends with the process."""

import asyncio
import time
from collections.abc import Callable
from uuid import uuid4

import msgspec

from backends.simulated.serving.adapters import Adapters
from backends.simulated.serving.clock import EngineClock
from backends.simulated.serving.face import Face
from backends.simulated.serving.faces import FACES
from backends.simulated.serving.faults import Faults, Share
from backends.simulated.serving.runner import Runner
from backends.simulated.serving.split import Channel, Depot
from backends.simulated.serving.split.bootstrap import Rooms
from backends.simulated.serving.types import Json, ServerSpec
from backends.simulated.serving.words import vocabulary


class Site:
    """Everything that a server is between two starts. `die` is called, at most once, when a fault kills it."""

    def __init__(self, spec: ServerSpec, die: Callable[[], None]) -> None:
        if spec.dialect not in FACES:
            raise ValueError(f"there is no dialect {spec.dialect!r}, only {', '.join(FACES)}")
        self.spec = spec
        self.face: Face = FACES[spec.dialect]
        self.version = spec.version or self.face.version
        engine = spec.engine or self.face.engine
        self.clock = EngineClock(spec.speed)
        self.runner = Runner(engine, spec.ranks, self.clock, engine.max_running if self.face.has_slots else None)
        self.vocabulary = vocabulary(spec.tokenizer)
        self.adapters = Adapters(spec.adapters, spec.max_adapters, spec.adapter_load_s, self.clock)
        self.channel = Channel()
        self.depot = Depot(self.runner)
        self.rooms = Rooms()
        if self.face.hand_over is not None:
            name, answer = self.face.hand_over
            self.channel.answers[name] = lambda asked: answer(self, asked)
        self.faults = Faults()
        self.created = int(time.time())
        self.started_at_s = time.time()
        self.instance = uuid4().hex
        self.transports: dict[object, asyncio.Transport] = {}
        self.thawed = asyncio.Event()
        self.thawed.set()
        self.is_over = False
        """This life has ended; what still runs is being cancelled."""
        self._errors, self._resets = Share(), Share()
        self._events_left: int | None = None
        self._die = die

    def change(self, **faults: object) -> Faults:
        """Switch faults on and off; what is not named stays. Raises `msgspec.ValidationError`. On the server's loop."""
        changed = msgspec.convert({**msgspec.to_builtins(self.faults), **faults}, Faults)
        self.faults = changed
        stands = changed.frozen or changed.wedged
        self.clock.change(0.0 if stands else self.spec.speed / changed.slow)
        self.runner.rate_changed()
        if changed.frozen:
            self.thawed.clear()
        else:
            self.thawed.set()
        if "die_after_events" in faults:
            self._events_left = changed.die_after_events
        return changed

    def is_reset(self) -> bool:
        """Whether this request is one of those that are reset."""
        return self.faults.reset_share > 0 and self._resets.hits(self.faults.reset_share)

    def is_failed(self) -> bool:
        """Whether this request is one of those that are answered with an error."""
        return self.faults.error_share > 0 and self._errors.hits(self.faults.error_share)

    def dies_now(self) -> bool:
        """To be asked before each event of a stream: whether the engine dies before it is out."""
        if self._events_left is None:
            return False
        if self._events_left > 0:
            self._events_left -= 1
            return False
        return True

    def die(self) -> None:
        """The end of this life."""
        self._events_left = None
        self._die()

    def state(self) -> Json:
        """What the engine did, for whoever looks at it from outside."""
        ranks = []
        for rank, engine in enumerate(self.runner.engines):
            sample, totals = self.runner.sample(rank), self.runner.totals[rank]
            ranks.append(
                {
                    "running": sample.running,
                    "waiting": sample.waiting,
                    "kv_use": sample.kv_use,
                    **{
                        name: getattr(totals, name)
                        for name in ("requests", "prompt_tokens", "cached_tokens", "external_tokens", "output_tokens")
                    },
                    "outcomes": dict(totals.outcomes),
                    "computed_tokens": engine.work.uncached_tokens,
                    "preemptions": engine.work.preemptions,
                }
            )
        return {
            "dialect": self.face.name,
            "instance": self.instance,
            "started_at_s": self.started_at_s,
            "faults": msgspec.to_builtins(self.faults),
            "adapters": {"resident": list(self.adapters.resident), "loads": self.adapters.loads},
            "deferred": self.runner.deferred,
            "parked": len(self.depot),
            "expired": self.depot.expired,
            "side_port": self.channel.port,
            "ranks": ranks,
        }
