"""Recorded agents give their published numbers; ServeGen's clients keep their skew and their bursts."""

from collections import Counter
from itertools import pairwise
from pathlib import Path
from statistics import mean, pstdev

import pytest

from gateway.sim import SimRequest
from gateway.sim.loads.agents import agents
from gateway.sim.loads.errors import LoadImpossible, WorkloadInvalid
from gateway.sim.loads.servegen import Traffic, read_clients, servegen
from tests.gateway.sim.loads.hit_share import unlimited

TRACES = Path(__file__).parents[4] / "bench/data/traces"
CLIENTS = TRACES / "servegen_clients.csv.gz"


@pytest.mark.parametrize(
    ("file", "requests", "mean_input", "mean_output", "hit_share"),
    [
        ("agent_miniswe_cl100k_b16", 402, 6170, 110, 0.934),
        ("agent_tau_airline_cl100k_b16", 2454, 5348, 79, 0.960),
    ],
)
def test_agents_reach_their_published_hit_share(
    file: str, requests: int, mean_input: int, mean_output: int, hit_share: float
) -> None:
    seen = unlimited(agents(TRACES / f"{file}.jsonl.gz", partial_blocks=True, every_s=0, turn_s=0).requests)

    assert seen.requests == requests
    assert seen.mean_input == pytest.approx(mean_input, abs=1)
    assert seen.mean_output == pytest.approx(mean_output, abs=1)
    assert seen.hit_share == pytest.approx(hit_share, abs=0.001)


def test_conversations_without_times_are_laid_side_by_side() -> None:
    requests = list(agents(TRACES / "agent_tau_airline_cl100k_b16.jsonl.gz", every_s=10, turn_s=5).requests)

    assert [r.at_s for r in requests] == sorted(r.at_s for r in requests)
    assert [r.number for r in requests] == list(range(2454))
    assert sum(r.after is None for r in requests) == 200
    assert max(r.at_s for r in requests if r.after is None) == 1990.0
    assert all(requests[r.after].session == r.session for r in requests if r.after is not None)


def test_a_few_clients_send_nearly_everything() -> None:
    load = servegen(CLIENTS, 0, Traffic(model="m-large", rate_per_s=20, seconds=6000))
    sent = Counter(r.tenant for r in load.requests)
    shares = {client.id: client.share for client in read_clients(CLIENTS, "m-large")}
    top_ten = sum(sorted(shares.values())[-10:])

    assert sent.total() == pytest.approx(120_000, rel=0.1)
    assert sum(n for _, n in sent.most_common(10)) / sent.total() == pytest.approx(top_ten, abs=0.05)


def test_clients_burst_as_the_table_says() -> None:
    client = max(read_clients(CLIENTS, "m-large"), key=lambda c: c.share)
    load = servegen(CLIENTS, 0, Traffic(model="m-large", rate_per_s=50, seconds=4000, head_share=0))
    times = [r.at_s for r in load.requests if r.tenant == client.id]
    gaps = [b - a for a, b in pairwise(times)]

    assert pstdev(gaps) / mean(gaps) == pytest.approx(client.cv, rel=0.1)


def test_a_client_reuses_its_head_and_nothing_else() -> None:
    def share(head_share: float) -> float:
        return unlimited(servegen(CLIENTS, 0, Traffic(seconds=600, head_share=head_share)).requests).hit_share

    assert share(0) == 0
    assert share(0.3) < share(0.6) <= 0.6


def test_the_same_seed_gives_the_same_requests() -> None:
    def requests(seed: int) -> list[SimRequest]:
        return list(servegen(CLIENTS, seed, Traffic(seconds=60)).requests)

    assert requests(1) == requests(1) != requests(2)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is empty"),
        ("model,client\n", "lacks the column category"),
        (
            "category,model,client,mean_cv,in_p50,in_p90,out_p50,out_p90,share\nx,m,1,much,,,,,1\n",
            "line 2: is no client",
        ),
        ("category,model,client,mean_cv,in_p50,in_p90,out_p50,out_p90,share\nx,m,1,-1,,,,,1\n", "line 2: a share"),
        (
            "category,model,client,mean_cv,in_p50,in_p90,out_p50,out_p90,share\nx,n,1,1,,,,,1\n",
            "no client of m: it has n",
        ),
    ],
)
def test_a_table_of_no_use_says_where(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "clients.csv"
    path.write_text(text)

    with pytest.raises(WorkloadInvalid, match=why):
        servegen(path, 0, Traffic("m"))


def test_no_rate_is_no_load() -> None:
    with pytest.raises(LoadImpossible, match="a rate"):
        servegen(CLIENTS, 0, Traffic(rate_per_s=0))
