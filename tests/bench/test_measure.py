"""What the comparison of load generators sends, and how it reads the other one's figures."""

import json
from pathlib import Path

import pytest

from bench.measure import Figures, figures_of, write_corpus


def test_every_line_of_the_corpus_is_read_by_both_generators(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    write_corpus(corpus)
    lines = [json.loads(line) for line in corpus.read_text().splitlines()]
    assert len(lines) == 400
    assert all(line["max_tokens"] == line["output_tokens_count"] >= 1 for line in lines)
    assert len({line["prompt"].split()[0] for line in lines}) > 100, "prompts share nothing"


def test_milliseconds_of_the_other_generator_are_seconds_and_only_answers_count() -> None:
    metrics = {
        "time_to_first_token_ms": {"successful": {"mean": 450.0}, "errored": {"mean": 1.0}},
        "inter_token_latency_ms": {"successful": {"mean": 28.0}},
        "requests_per_second": {"successful": {"mean": 0.5}},
        "output_tokens_per_second": {"successful": {"mean": 27.0}},
    }
    found = figures_of(metrics)
    assert found.ttft_s == pytest.approx(0.45)
    assert found.itl_s == pytest.approx(0.028)
    assert found == Figures(found.ttft_s, found.itl_s, 0.5, 27.0)
