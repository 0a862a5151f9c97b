"""A file is recognised by its first line; one of no use says which line and why."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.sim import Workload
from gateway.sim.loads import WorkloadInvalid, agents, azure, mooncake, open_trace, sessions

TRACES = Path(__file__).parents[4] / "bench/data/traces"
Write = Callable[..., Path]
ROW = '{"timestamp": 5, "input_length": 600, "output_length": 3, "hash_ids": [7, 8], "other": [1]}'
SESSION = '{"session": "a", "block_size": 64, "requests": [{"t": 0, "in": 130, "out": 3, "runs": [1, 2]}]}'


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def to_file(*lines: str) -> Path:
        path = tmp_path / "load.jsonl"
        path.write_text("\n".join(lines))
        return path

    return to_file


@pytest.mark.parametrize(
    ("file", "block_size"),
    [
        ("mooncake_conversation.jsonl.gz", 512),
        ("mooncake_synthetic.jsonl.gz", 512),
        ("claude_code_sessions_weka.jsonl.gz", 64),
        ("agent_miniswe_cl100k_b16.jsonl.gz", 16),
        ("agent_tau_airline_cl100k_b16.jsonl.gz", 16),
        ("azure2023_conv.jsonl.gz", 16),
        ("servegen_clients.csv.gz", 16),
    ],
)
def test_each_recorded_load_is_recognised(file: str, block_size: int) -> None:
    load = open_trace(TRACES / file)
    first = next(iter(load.requests))

    assert load.block_size == first.chain.block_size == block_size
    assert first.number == 0


def test_plain_and_compressed_files_read_alike(write: Write, tmp_path: Path) -> None:
    plain = write(ROW, "", ROW)
    packed = tmp_path / "load.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))

    assert list(open_trace(plain).requests) == list(open_trace(packed).requests)
    assert len(list(open_trace(plain).requests)) == 2


def test_a_last_block_that_is_not_full_counts_only_if_asked_for(write: Write) -> None:
    path = write(ROW)
    (whole,) = mooncake(path).requests
    (partial,) = mooncake(path, partial_blocks=True).requests

    assert whole.chain.hashes == (7).to_bytes(8, "little")
    assert partial.chain.hashes[8:] == (8).to_bytes(8, "little")
    assert whole.prompt_tokens == partial.prompt_tokens == 600
    assert whole.at_s == 0.005


def test_sessions_and_delays_of_rows_chain_their_turns(write: Write) -> None:
    row = '{"timestamp": %d, "input_length": 16, "output_length": 1, "session_id": "s"%s}'
    first, second, third = azure(write(row % (0, ""), row % (4000, ""), row % (9000, ', "delay": 500'))).requests

    assert (first.after, second.after, third.after) == (None, 0, 1)
    assert (second.think_s, third.think_s) == (4.0, 0.5)


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ([], "is empty"),
        (["", "  "], "is empty"),
        (["prose"], "line 1: is neither"),
        (["{"], "line 1: is no JSON object"),
        (["{}"], "line 1: has neither"),
        ([ROW, "{"], "line 2: is no JSON object"),
        ([ROW, '{"timestamp": 5, "output_length": 3}'], "line 2: .*input_length"),
        ([ROW, '{"timestamp": 5, "input_length": -1, "output_length": 3}'], "line 2: .*>= 0"),
        ([ROW, '{"timestamp": 5, "input_length": 1.5, "output_length": 3}'], "line 2: .*int"),
        (
            [ROW, '{"timestamp": 5, "input_length": 600, "output_length": 3, "hash_ids": [1, 2, 3]}'],
            "line 2: has 3 ids",
        ),
        ([ROW, '{"timestamp": 5, "input_length": 600, "output_length": 3, "hash_ids": [1, -2]}'], "line 2: "),
        (
            [ROW, '{"timestamp": 5, "input_length": 512, "output_length": 3, "hash_ids": [18446744073709551616]}'],
            "line 2",
        ),
        ([ROW, '{"timestamp": 4, "input_length": 0, "output_length": 3}'], "line 2: goes back in time"),
        ([ROW, '{"input_length": 0, "output_length": 3}'], "line 2: has no timestamp"),
        (['{"timestamp": 5, "input_length": 32, "output_length": 3, "runs": [1]}'], "line 1: `runs` wants pairs"),
        ([SESSION, SESSION.replace("64", "32")], "line 2: has blocks of 32"),
        ([SESSION.replace("[1, 2]", "[1, 3]")], "line 1: request 0: 3 ids for 2 whole blocks"),
        ([SESSION.replace("[1, 2]", "[1]")], "line 1: request 0: `runs` wants pairs"),
        ([SESSION.replace("[1, 2]", "[-1, 2]")], "line 1: "),
        ([SESSION.replace('"t"', '"T"')], "line 1: .*`t`"),
        (
            [SESSION.replace("}]", '}, {"t": 9, "in": 1, "out": 1}, {"t": 8, "in": 1, "out": 1}]')],
            "request 2: goes back",
        ),
    ],
)
def test_a_file_of_no_use_says_where_and_why(write: Write, lines: list[str], why: str) -> None:
    path = write(*lines)

    with pytest.raises(WorkloadInvalid, match=why) as failed:
        list(open_trace(path).requests)

    assert failed.value.path == path


def test_a_missing_file_is_no_load(tmp_path: Path) -> None:
    with pytest.raises(WorkloadInvalid, match="cannot be read"):
        open_trace(tmp_path / "nothing")


def test_a_compressed_file_that_was_cut_off_is_no_load(tmp_path: Path) -> None:
    path = tmp_path / "cut.gz"
    path.write_bytes((TRACES / "mooncake_synthetic.jsonl.gz").read_bytes()[:10_000])

    with pytest.raises(WorkloadInvalid, match="cannot be read"):
        list(open_trace(path).requests)


def test_sessions_start_at_random_with_a_seed_and_evenly_without() -> None:
    path = TRACES / "claude_code_sessions_weka.jsonl.gz"

    def begins(load: Workload) -> list[float]:
        return [r.at_s for r in load.requests if r.after is None]

    even = begins(sessions(path, every_s=60, limit_s=1800))
    random = begins(sessions(path, every_s=60, limit_s=1800, seed=1))

    assert even == [60.0 * n for n in range(31)]
    assert random == begins(sessions(path, every_s=60, limit_s=1800, seed=1)) != even
    assert len(random) == pytest.approx(31, abs=18)


def test_turns_of_a_session_follow_their_own_agent() -> None:
    requests = list(sessions(TRACES / "claude_code_sessions_weka.jsonl.gz", limit_s=20_000).requests)

    assert [r.number for r in requests] == list(range(len(requests)))
    assert all(requests[r.after].session == r.session for r in requests if r.after is not None)
    assert all(r.think_s >= 0 for r in requests)


def test_blocks_of_another_size_are_found_out(write: Write) -> None:
    with pytest.raises(WorkloadInvalid, match="blocks of 16 tokens would be 38"):
        list(mooncake(write(ROW), block_size=16).requests)


def test_agents_read_a_file_with_times_in_its_order(write: Write) -> None:
    row = '{"timestamp": %d, "session_id": "%s", "input_length": 20, "output_length": 1, "runs": [1, 2]}'
    a, b = agents(write(row % (0, "x"), row % (10, "y"))).requests

    assert (a.session, b.session, b.after) == ("x", "y", None)
    assert len(a.chain) == 1
