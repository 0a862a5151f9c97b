"""A file of requests is recognised by its first line; nobody has to say what it is."""

import csv
from pathlib import Path

import msgspec

from gateway.sim.loads.agents import agents
from gateway.sim.loads.azure import azure
from gateway.sim.loads.errors import WorkloadInvalid
from gateway.sim.loads.lines import lines_of
from gateway.sim.loads.mooncake import mooncake
from gateway.sim.loads.servegen import COLUMNS, servegen
from gateway.sim.loads.sessions import sessions
from gateway.sim.types import Workload

FIRST = msgspec.json.Decoder(dict[str, object])


def open_trace(path: Path, seed: int = 0) -> Workload:
    """The load of a file, JSON Lines or a table of ServeGen's clients, with the defaults of its form.

    `runs` in requests are agents', `hash_ids` Mooncake's, `requests` are sessions, lengths alone Azure's; `seed` is for
    ServeGen, the others hold nothing to draw. Raises WorkloadInvalid for a first line of none of these forms.
    """
    line, text = next(lines_of(path))
    if not text.startswith(b"{"):
        columns = next(csv.reader([text.decode("utf-8", "replace")]))
        if set(COLUMNS) <= set(columns):
            return servegen(path, seed)
        raise WorkloadInvalid(path, line, "is neither a JSON object nor the head of a table of clients")
    try:
        fields = FIRST.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as e:
        raise WorkloadInvalid(path, line, f"is no JSON object: {e}") from e
    if "requests" in fields:
        return sessions(path)
    if "runs" in fields:
        return agents(path)
    if "hash_ids" in fields:
        return mooncake(path)
    if "input_length" in fields:
        return azure(path)
    raise WorkloadInvalid(path, line, "has neither `input_length` nor `requests`: no form of a load that is known here")
