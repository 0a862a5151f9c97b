"""Messages that real engines published, as they came."""

import json
from pathlib import Path

CAPTURES = Path(__file__).parents[2] / "data" / "captures" / "kv_events"


def frames_of(name: str) -> list[list[bytes]]:
    """The frames of each message of a recording, in order."""
    lines = (CAPTURES / f"vllm-0.32-{name}.jsonl").read_text().splitlines()
    return [[bytes.fromhex(frame) for frame in json.loads(line)["frames_hex"]] for line in lines]
