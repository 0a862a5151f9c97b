"""A few clients send nearly everything, in bursts: the skew and the burstiness that ServeGen found in production.

    client 5 of m-small   30 % of all requests    gaps vary 2.5 times as much as their mean
    client 34             0.001 %                 inputs of 1,891 tokens, p90 2,446

Each client sends by itself, with gamma gaps of its own variation; the sum of all is scaled to the rate asked for. The
table has no prompts: each client is given a head of its own, which is that share of its prompts that `head_share`
says, and the rest of each prompt is new. With a share of 0 nothing is reused and only lengths and times are left.
"""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heapify, heapreplace
from pathlib import Path

from gateway.sim.loads.again import dice_of
from gateway.sim.loads.errors import WorkloadInvalid
from gateway.sim.loads.lengths import Lognormal, by_p90
from gateway.sim.loads.lines import lines_of
from gateway.sim.loads.names import Names, require
from gateway.sim.types import SimRequest, Workload
from prefix_index import HASH_BYTES, Chain

COLUMNS = ("category", "model", "client", "mean_cv", "in_p50", "in_p90", "out_p50", "out_p90", "share")

DEFAULT_INPUT = by_p90(1020, 2735)
DEFAULT_OUTPUT = by_p90(129, 424)
"""For clients whose lengths the table leaves out: the quantiles of Azure's hour of chat."""


@dataclass(frozen=True, slots=True)
class Client:
    """One line: `share` of the model's requests, `cv` of its gaps (1 = Poisson)."""

    id: str
    share: float
    cv: float
    inputs: Lognormal
    outputs: Lognormal


def read_clients(path: Path, model: str) -> list[Client]:
    """The clients of a model, in the order of the table. Raises WorkloadInvalid, with the line."""
    lines = ((number, line.decode("utf-8", "replace")) for number, line in lines_of(path))
    _, head = next(lines)
    columns = next(csv.reader([head]))
    if missing := [column for column in COLUMNS if column not in columns]:
        raise WorkloadInvalid(path, 1, f"lacks the column {missing[0]}")
    clients, models = [], set()
    for number, line in lines:
        fields = dict(zip(columns, next(csv.reader([line])), strict=False))
        models.add(fields.get("model", ""))
        if fields.get("model") == model:
            clients.append(_client(path, number, fields))
    if not clients:
        raise WorkloadInvalid(path, None, f"has no client of {model}: it has {', '.join(sorted(models))}")
    return clients


def _client(path: Path, line: int, fields: dict[str, str]) -> Client:
    try:
        inputs = _lengths(fields, "in", DEFAULT_INPUT)
        outputs = _lengths(fields, "out", DEFAULT_OUTPUT)
        client = Client(fields["client"], float(fields["share"]), float(fields["mean_cv"]), inputs, outputs)
    except (KeyError, ValueError) as e:
        raise WorkloadInvalid(path, line, f"is no client: {e}") from e
    if client.share < 0 or not client.cv > 0:
        raise WorkloadInvalid(path, line, "a share is not negative, and gaps vary")
    return client


def _lengths(fields: dict[str, str], kind: str, unknown: Lognormal) -> Lognormal:
    p50, p90 = fields[f"{kind}_p50"], fields[f"{kind}_p90"]
    return by_p90(max(1.0, float(p50)), float(p90)) if p50 and p90 else unknown


@dataclass(frozen=True, slots=True)
class Traffic:
    """`seconds` of all clients of a model together; `head_share` of each prompt is its client's own fixed head."""

    model: str = "m-large"
    rate_per_s: float = 10.0
    seconds: float = 3600.0
    head_share: float = 0.6
    block_size: int = 16


@dataclass(frozen=True, slots=True)
class ServeGen:
    """The clients' requests in order of time; keeps one head a client."""

    clients: list[Client]
    traffic: Traffic
    seed: int

    def __iter__(self) -> Iterator[SimRequest]:
        """O(blocks), and O(log clients) a request."""
        traffic, dice, names = self.traffic, dice_of(self.seed), Names()
        shares = sum(client.share for client in self.clients)
        heads = [names.fresh(self._head_blocks(client)) for client in self.clients]
        gaps = [_gaps(client, traffic.rate_per_s * client.share / shares) for client in self.clients]
        # From the middle of a gap on: or else all clients would begin together.
        due = [(dice.random() * dice.gammavariate(*gap), i) for i, gap in enumerate(gaps) if gap[1] > 0]
        heapify(due)
        number = 0
        while due and due[0][0] < traffic.seconds:
            at_s, i = due[0]
            client = self.clients[i]
            tokens = client.inputs(dice)
            blocks = tokens // traffic.block_size
            head = heads[i][: int(blocks * traffic.head_share) * HASH_BYTES]
            chain = Chain(names.extend(head, blocks), traffic.block_size, tokens)
            yield SimRequest(number, at_s, chain, client.outputs(dice), client.id, client.id)
            number += 1
            heapreplace(due, (at_s + dice.gammavariate(*gaps[i]), i))

    def _head_blocks(self, client: Client) -> int:
        return int(client.inputs.p90 * self.traffic.head_share) // self.traffic.block_size


def _gaps(client: Client, rate_per_s: float) -> tuple[float, float]:
    """Shape and scale, in seconds, of the gamma distribution of its gaps; a scale of 0 where it sends nothing."""
    shape = 1 / client.cv**2
    return shape, 1 / rate_per_s / shape if rate_per_s > 0 else 0.0


def servegen(path: Path, seed: int = 0, traffic: Traffic = Traffic()) -> Workload:
    """The clients of a model, each with its share of the rate; tenant and session are the client.

    A head reaches as far as in the client's p90 prompt, and is no more than `head_share` of a shorter one. Raises
    WorkloadInvalid at once for a table of no use, LoadImpossible for numbers out of range.
    """
    require(traffic.rate_per_s > 0 and traffic.seconds >= 0, "a rate is more than 0, a time not less")
    require(traffic.block_size > 0 and 0 <= traffic.head_share <= 1, "a block has tokens, a share is at most 1")
    clients = read_clients(path, traffic.model)
    require(sum(client.share for client in clients) > 0, "some client sends something")
    return Workload(f"servegen-{traffic.model}", traffic.block_size, ServeGen(clients, traffic, seed))
