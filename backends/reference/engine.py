"""The engine: a thread that steps, and the fence in front of it.

    any thread                         engine thread
    submit, abort, reset  --inbox-->   take in -> plan -> forward -> sample -> commit -> deltas  --listener-->

Between two steps the thread takes in what arrived; during a step nothing changes, so scheduler, pool and decoder need
no locks. An abort therefore frees its blocks after the step that runs. The thread sleeps when there is no work.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from backends.reference.block_pool import HASH_ALGORITHM, BlockPool
from backends.reference.decoder import PagedDecoder
from backends.reference.errors import EngineStopped, NoNumbers, ReferenceEngineError
from backends.reference.event_publisher import EventPublisher
from backends.reference.generation import Ending, Generation, new_generation
from backends.reference.kv_events import EventLog
from backends.reference.metrics import EngineGauges, EngineMetrics
from backends.reference.scheduler import Scheduler
from backends.reference.scoring import scored
from backends.reference.sequence import Sequence
from backends.reference.speculation import SpeculativeSteps
from backends.reference.speculation.setup import new_drafter
from backends.reference.stepping import PlainSteps, Stepping
from backends.reference.tokenizer import ModelTokenizer
from backends.reference.types import EngineConfig, FinishReason, GenerationRequest, Listener, RequestId
from backends.reference.weights import ModelWeights, identity

logger = logging.getLogger("backends.reference")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class KvCache:
    """The blocks of an engine and what they hold, as `PagedDecoder.kv`. To be touched on the engine's thread alone.

    `model` is the `identity` of who computed that.
    """

    pool: BlockPool
    values: Tensor
    model: bytes


@dataclass(frozen=True, slots=True)
class EngineStats:
    """What the engine did and holds, for tests and operators.

    `computed_tokens` went through the model, prompt and output, recomputation after a preemption included.
    """

    computed_tokens: int
    steps: int
    running: int
    waiting: int
    free_blocks: int
    held_blocks: int
    cached_blocks: int
    evicted_blocks: int
    preemptions: int


class Engine:
    """One model with one KV cache. Thread-safe through its inbox; `stop` it when done."""

    def __init__(self, config: EngineConfig, weights: ModelWeights, tokenizer: ModelTokenizer) -> None:
        self.config = config
        self.shape = weights.shape
        capacity_tokens = config.kv_blocks * config.block_size
        self.max_model_len = min(weights.shape.max_positions, capacity_tokens, config.max_model_len or capacity_tokens)
        self._tokenizer = tokenizer
        self._decoder = PagedDecoder(
            weights, kv_blocks=config.kv_blocks, block_size=config.block_size, max_positions=self.max_model_len
        )
        self.events = None if config.kv_events is None else EventPublisher(config.kv_events)
        self._log = None if self.events is None else EventLog(config.block_size, self.events.publish, time.time)
        self._pool = BlockPool(config.kv_blocks, self._log)
        self._scheduler = Scheduler(
            self._pool,
            block_size=config.block_size,
            max_num_seqs=config.max_num_seqs,
            max_batched_tokens=config.max_batched_tokens,
        )
        self._model = identity(weights, config.weights)
        self._generations: dict[RequestId, Generation] = {}
        self._by_sequence: dict[Sequence, Generation] = {}
        self._inbox: deque[Callable[[], None]] = deque()
        self._wakeup = threading.Condition()
        self._ended: str | None = None
        self._submitted = 0
        self._taken_in = 0
        self._steps = 0
        self.metrics = self._build_metrics(capacity_tokens)
        self._stepping = self._build_stepping(weights)
        self._thread = threading.Thread(target=self._run, name="reference-engine", daemon=True)

    def start(self) -> None:
        """Begin stepping. Raises `EventsUnavailable` when it shall publish events and cannot."""
        if self.events is not None:
            self.events.start()
        self._thread.start()

    def begin_stop(self) -> None:
        """Let the step that runs end, then abort everything and end the thread. Returns at once; safe to call twice."""
        with suppress(EngineStopped):
            self._post(lambda: self._end("stopped"))

    def stop(self) -> None:
        """`begin_stop`, and wait until the thread has ended."""
        self.begin_stop()
        self._thread.join()
        if self.events is not None:
            self.events.stop()

    @property
    def ended(self) -> str | None:
        """Why the engine no longer steps; `None` while it does."""
        return self._ended

    def submit(self, request: GenerationRequest, listener: Listener) -> None:
        """Queue a request; `listener` gets its deltas on the engine's thread. Raises `EngineStopped`.

        The caller has checked that prompt and `max_tokens` together fit `max_model_len`.
        """
        arrived_s = time.monotonic()
        assert 0 < len(request.prompt_tokens) <= self.max_model_len - request.sampling.max_tokens
        self._post(lambda: self._take_in(request, listener, arrived_s))
        self._submitted += 1

    def abort(self, request_id: RequestId) -> None:
        """End a request early; unknown and finished ones are ignored, as is a stopped engine."""
        with suppress(EngineStopped):
            self._post(lambda: self._abort(request_id))

    def reset_prefix_cache(self) -> "Future[bool]":
        """Empty the prefix cache between two steps; the result is False when some request held blocks.

        Raises `EngineStopped`, as do all that ask between two steps.
        """
        return self.between_steps(lambda cache: cache.pool.forget())

    def between_steps(self, work: Callable[[KvCache], T]) -> "Future[T]":
        """What `work` makes of the cache, on the engine's thread, between two steps. Not done where the future was
        cancelled before.

        Errors of this engine that `work` raises are the future's; any other ends the engine, and the future has
        `EngineStopped`. Raises `EngineStopped`.
        """
        done: Future[T] = Future()

        def run() -> None:
            if not done.set_running_or_notify_cancel():
                return
            try:
                done.set_result(self._told(work))
            except ReferenceEngineError as error:
                done.set_exception(error)
            finally:
                if not done.done():
                    done.set_exception(EngineStopped("what was done between two steps failed"))

        self._post(run)
        return done

    def score(self, tokens: tuple[int, ...]) -> "Future[list[float]]":
        """ln p of each token but the first, computed between two steps; see `scoring`. Raises `EngineStopped`.

        The caller has checked that they fit `max_model_len`.
        """
        return self.between_steps(lambda cache: scored(self._decoder, cache.pool, self.config.block_size, tokens))

    def stats(self) -> "Future[EngineStats]":
        """A consistent snapshot, taken between two steps."""
        return self.between_steps(lambda _: self._snapshot())

    def _post(self, command: Callable[[], None]) -> None:
        with self._wakeup:
            if self._ended is not None:
                raise EngineStopped(self._ended)
            self._inbox.append(command)
            self._wakeup.notify()

    def _run(self) -> None:
        if self.config.threads is not None:
            torch.set_num_threads(self.config.threads)
        try:
            while self._ended is None:
                self._take_in_inbox()
                if self._scheduler.has_work:
                    self._step()
        except Exception as error:
            # The loop guard: whatever failed, open requests must hear of it and /health must turn.
            logger.exception("engine step failed")
            self._end(type(error).__name__)

    def _take_in_inbox(self) -> None:
        with self._wakeup:
            while not self._inbox and not self._scheduler.has_work:
                self._wakeup.wait()
        while self._ended is None and self._inbox:
            self._inbox.popleft()()

    def _step(self) -> None:
        preemptions_before = self._scheduler.preemptions
        slices = self._scheduler.plan()
        self.metrics.preemptions.inc(self._scheduler.preemptions - preemptions_before)
        now_s = time.monotonic()
        for one in slices:
            generation = self._by_sequence[one.sequence]
            self.metrics.observe_scheduled(generation.timeline, now_s, generation.receipt())
        complete = [self._by_sequence[one.sequence] for one in slices if one.is_complete]
        drawn = self._stepping.run(slices, complete)
        self._steps += 1
        self._tell()
        for generation, tokens in zip(complete, drawn, strict=True):
            self._deliver_all(generation, tokens)
        self._tell()

    def _told(self, work: Callable[[KvCache], T]) -> T:
        """What `work` makes of the cache; whoever follows the cache has heard of it then."""
        try:
            return work(KvCache(self._pool, self._decoder.kv, self._model))
        finally:
            self._tell()

    def _tell(self) -> None:
        if self._log is not None:
            self._log.flush()

    def _deliver_all(self, generation: Generation, tokens: Iterable[int]) -> None:
        try:
            for token in tokens:
                self._deliver(generation, token)
                if generation.ending is not None:
                    break
        except NoNumbers as error:
            logger.warning("request %s: %s", generation.request.request_id, error)
            self._break_off(generation, FinishReason.ERROR)

    def _deliver(self, generation: Generation, token: int) -> None:
        delta = generation.accept(token, self.shape.eos_token_ids)
        self.metrics.observe_token(generation.timeline, time.monotonic(), delta.receipt)
        if generation.ending is not None:
            self._close(generation)
        generation.listener(delta)

    def _take_in(self, request: GenerationRequest, listener: Listener, arrived_s: float) -> None:
        generation = new_generation(
            request, listener, block_size=self.config.block_size, tokenizer=self._tokenizer, now_s=arrived_s
        )
        self._generations[request.request_id] = generation
        self._by_sequence[generation.sequence] = generation
        self._scheduler.add(generation.sequence)
        self._taken_in += 1

    def _abort(self, request_id: RequestId) -> None:
        if generation := self._generations.get(request_id):
            self._break_off(generation, FinishReason.ABORT)

    def _break_off(self, generation: Generation, reason: FinishReason) -> None:
        generation.ending = Ending(reason)
        self._close(generation)
        generation.listener(generation.delta())

    def _close(self, generation: Generation) -> None:
        assert generation.ending is not None
        self._scheduler.remove(generation.sequence)
        del self._generations[generation.request.request_id]
        del self._by_sequence[generation.sequence]
        self.metrics.observe_end(generation.timeline, generation.ending.reason)

    def _end(self, why: str) -> None:
        with self._wakeup:
            self._ended = self._ended or why
        # Nothing is posted any more; what was posted before must still get its answer.
        while self._inbox:
            self._inbox.popleft()()
        reason = FinishReason.ABORT if why == "stopped" else FinishReason.ERROR
        for generation in list(self._generations.values()):
            self._break_off(generation, reason)

    def _snapshot(self) -> EngineStats:
        return EngineStats(
            computed_tokens=self._stepping.computed_tokens,
            steps=self._steps,
            running=len(self._scheduler.running),
            waiting=len(self._scheduler.waiting),
            free_blocks=self._pool.free_blocks,
            held_blocks=self._pool.held_blocks,
            cached_blocks=self._pool.cached_blocks,
            evicted_blocks=self._pool.evicted_blocks,
            preemptions=self._scheduler.preemptions,
        )

    def _build_stepping(self, weights: ModelWeights) -> Stepping:
        wanted = self.config.speculation
        if wanted is None:
            return PlainSteps(self._decoder, self._scheduler)
        return SpeculativeSteps(
            self._decoder,
            self._scheduler,
            new_drafter(self.config, wanted, weights, self.max_model_len),
            self.metrics.speculation(),
            longest_tokens=wanted.tokens,
            budget_tokens=self.config.max_batched_tokens,
        )

    def _build_metrics(self, capacity_tokens: int) -> EngineMetrics:
        gauges = EngineGauges(
            running=lambda: len(self._scheduler.running),
            waiting=lambda: len(self._scheduler.waiting) + max(self._submitted - self._taken_in, 0),
            kv_usage=lambda: self._pool.held_blocks / self._pool.total_blocks,
        )
        cache_config = {
            "block_size": str(self.config.block_size),
            "num_gpu_blocks": str(self.config.kv_blocks),
            "cache_dtype": "float32",
            "enable_prefix_caching": "True",
            "prefix_caching_hash_algo": HASH_ALGORITHM,
            "kv_cache_size_tokens": str(capacity_tokens),
        }
        return EngineMetrics(self.config.served_name, gauges, cache_config)
