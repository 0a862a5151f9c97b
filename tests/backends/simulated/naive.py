"""The simulated engine as one would write it first: every block by itself, every step by itself. The oracle of the real
one."""

from backends.simulated import EngineSpec, Job, Role


class NaiveCache:
    """Blocks in lists: who holds which, and the free ones in the order in which they go."""

    def __init__(self, capacity: int, host_capacity: int = 0) -> None:
        self.capacity = capacity
        self.host_capacity = host_capacity
        self.pins: dict[int, int] = {}
        self.free: list[int] = []
        self.host: list[int] = []
        self.anonymous = 0

    @property
    def held(self) -> int:
        return sum(1 for pins in self.pins.values() if pins) + self.anonymous

    @property
    def free_blocks(self) -> int:
        return self.capacity - self.held

    def found(self, chain: list[int]) -> tuple[int, int]:
        device = 0
        while device < len(chain) and chain[device] in self.pins:
            device += 1
        both = device
        while both < len(chain) and chain[both] in self.host:
            both += 1
        return device, both - device

    def pin(self, name: int) -> None:
        if name in self.free:
            self.free.remove(name)
        if name in self.host:
            self.host.remove(name)
        self.pins[name] = self.pins.get(name, 0) + 1

    def unpin(self, name: int) -> None:
        self.pins[name] -= 1
        if not self.pins[name]:
            self.free.append(name)

    def trim(self) -> None:
        while len(self.pins) + self.anonymous > self.capacity:
            gone = self.free.pop(0)
            del self.pins[gone]
            if self.host_capacity:
                self.host.append(gone)
        del self.host[: max(0, len(self.host) - self.host_capacity)]


class NaiveJob:
    """A request, with its tokens counted one at a time."""

    def __init__(self, job: Job, output_tokens: int, decode_only: bool) -> None:
        self.job = job
        self.chain = [int.from_bytes(job.blocks[i : i + 8], "little") for i in range(0, len(job.blocks), 8)]
        self.output_tokens = output_tokens
        self.decode_only = decode_only
        self.written = 0
        self.known = 0
        self.computed = 0
        self.named = 0
        self.anonymous = 0
        self.state = "waiting"
        self.ready_s = 0.0
        self.extra_s = 0.0
        self.cached: int | None = None
        self.host = 0
        self.aborted = False


class NaiveEngine:
    """Events as tuples (kind, number, time, ...)."""

    def __init__(self, spec: EngineSpec) -> None:
        self.spec = spec
        self.cache = NaiveCache(spec.capacity_blocks, spec.host_blocks)
        self.waiting: list[NaiveJob] = []
        self.running: list[NaiveJob] = []
        self.events: list[tuple[str, int, float, tuple[int, ...]]] = []
        self.busy_until: float | None = None
        self.slices: list[tuple[NaiveJob, int]] = []
        self.decoders: list[NaiveJob] = []
        self.preemptions = 0
        self.uncached = 0
        self.queries = 0
        self.hits = 0

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.spec.block_size)

    def submit(self, job: Job, now_s: float) -> None:
        self.run(now_s)
        output = 1 if self.spec.role is Role.PREFILL else job.output_tokens
        if self.blocks_for(job.prompt_tokens + output - 1) > self.spec.capacity_blocks:
            self.events.append(("dropped", job.number, now_s, ()))
            return
        self.waiting.append(NaiveJob(job, output, self.spec.role is Role.DECODE))
        self.wake(now_s)

    def abort(self, number: int, now_s: float) -> None:
        self.run(now_s)
        for one in self.waiting + self.running:
            if one.job.number == number:
                one.aborted = True
                self.wake(now_s)

    def wake(self, now_s: float) -> None:
        if self.busy_until is None or not (self.slices or self.decoders):
            self.start_step(now_s)

    def run(self, now_s: float) -> None:
        while self.busy_until is not None and self.busy_until <= now_s:
            end_s = self.busy_until
            self.end_step(end_s)
            self.start_step(end_s)

    def let_go(self, one: NaiveJob) -> None:
        for name in reversed(one.chain[: one.named]):
            self.cache.unpin(name)
        self.cache.anonymous -= one.anonymous
        one.named = one.anonymous = 0
        self.running.remove(one)

    def start_step(self, now_s: float) -> None:
        self.waiting = [one for one in self.waiting if not one.aborted]
        for one in [one for one in self.running if one.aborted]:
            self.let_go(one)
        for one in self.running:
            if one.state == "transfer" and one.ready_s <= now_s:
                one.computed = one.known
                self.publish(one)
                one.state = "decoding"
        preempted = self.take_decode_blocks()
        self.slices = []
        budget = self.spec.chunk_tokens - len(self.decoders)
        for one in self.running:
            if one.state == "prefill" and budget:
                tokens = min(budget, one.known - one.computed)
                self.slices.append((one, tokens))
                budget -= tokens
        if not preempted:
            self.admit(now_s, budget)
        self.busy_until = self.step_end(now_s)

    def take_decode_blocks(self) -> bool:
        preempted = False
        while True:
            self.decoders = [one for one in self.running if one.state == "decoding"]
            needing = [one for one in self.decoders if self.needs_block(one)]
            if len(needing) <= self.cache.free_blocks:
                break
            victim = self.running[-1]
            self.let_go(victim)
            victim.state = "waiting"
            victim.extra_s = 0.0
            self.waiting.insert(0, victim)
            self.preemptions += 1
            preempted = True
        for one in needing:
            one.anonymous += 1
            self.cache.anonymous += 1
            self.cache.trim()
        return preempted

    def needs_block(self, one: NaiveJob) -> bool:
        return self.blocks_for(one.known + 1) > one.named + one.anonymous

    def admit(self, now_s: float, budget: int) -> None:
        size = self.spec.block_size
        while self.waiting and budget and len(self.running) < min(self.spec.max_running, self.spec.chunk_tokens):
            one = self.waiting[0]
            tokens = one.job.prompt_tokens + one.written
            known = tokens - 1 if one.decode_only else tokens
            device, host = self.cache.found(one.chain[: (tokens - 1) // size])
            total = self.blocks_for(known)
            free_found = sum(1 for name in one.chain[:device] if not self.cache.pins[name])
            if self.blocks_for(tokens) - device > self.cache.free_blocks - free_found:
                return
            self.waiting.pop(0)
            self.running.append(one)
            for name in one.chain[: device + host]:
                self.cache.pin(name)
            one.named = device + host
            one.anonymous = total - one.named
            self.cache.anonymous += one.anonymous
            self.cache.trim()
            one.known, one.computed = known, one.named * size
            one.extra_s = host * size / self.spec.host_tokens_per_s
            if one.cached is None:
                one.cached, one.host = one.computed, host * size
                self.queries += one.job.prompt_tokens
                self.hits += one.cached
                if not one.decode_only:
                    one.extra_s += self.spec.perf.base_s
            if one.decode_only:
                one.state = "transfer"
                one.ready_s = now_s + one.extra_s + (known - one.computed) / self.spec.transfer_tokens_per_s
            else:
                one.state = "prefill"
                chunk = min(budget, known - one.computed)
                self.slices.append((one, chunk))
                budget -= chunk

    def step_end(self, now_s: float) -> float | None:
        perf = self.spec.perf
        seconds = 0.0
        if self.decoders:
            seconds += perf.decode_step_s(len(self.decoders), sum(one.known + 1 for one in self.decoders))
        for one, tokens in self.slices:
            seconds += one.extra_s + tokens / perf.prefill_tokens_per_s
            seconds += perf.quad_s_per_token2 * tokens * one.known
            one.extra_s = 0.0
        if self.decoders or self.slices:
            return now_s + seconds
        arriving = [one.ready_s for one in self.running if one.state == "transfer"]
        return min(arriving) if arriving else None

    def end_step(self, end_s: float) -> None:
        decoders, self.decoders = self.decoders, []
        slices, self.slices = self.slices, []
        for one in decoders:
            one.known += 1
            self.wrote(one, end_s)
        for one, tokens in slices:
            self.uncached += tokens
            one.computed += tokens
            self.publish(one)
            if one.computed == one.known:
                one.state = "decoding"
                self.wrote(one, end_s)

    def publish(self, one: NaiveJob) -> None:
        while one.named < min(len(one.chain), one.computed // self.spec.block_size):
            self.cache.pin(one.chain[one.named])
            one.named += 1
            one.anonymous -= 1
            self.cache.anonymous -= 1

    def wrote(self, one: NaiveJob, end_s: float) -> None:
        if one.aborted:
            return
        one.written += 1
        if one.written == 1:
            self.events.append(("first", one.job.number, end_s, (one.cached or 0, one.host)))
        if one.written == one.output_tokens:
            one.computed = one.known
            self.publish(one)
            self.let_go(one)
            self.events.append(("finished", one.job.number, end_s, ()))
