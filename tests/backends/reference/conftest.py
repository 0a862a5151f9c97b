"""One set of weights, one tokenizer and one server for all tests of the reference engine."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
import torch

from backends.reference.embedded import RunningEngine, run_engine
from backends.reference.model_files import ensure_model
from backends.reference.tokenizer import ModelTokenizer
from backends.reference.types import EngineConfig
from backends.reference.weights import ModelWeights
from tests.backends.reference.micro_model import micro_weights


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny_directory() -> Path:
    return ensure_model("tiny")


@pytest.fixture(scope="session")
def tokenizer(tiny_directory: Path) -> ModelTokenizer:
    return ModelTokenizer(tiny_directory)


@pytest.fixture(scope="session")
def micro() -> ModelWeights:
    return micro_weights()


@pytest.fixture
def served(micro: ModelWeights) -> Iterator[RunningEngine]:
    """A fresh server over the micro model with the tiny model's tokenizer and template, 64 blocks of 16."""
    with run_engine(EngineConfig(model="tiny", kv_blocks=64), micro) as running:
        yield running


@pytest.fixture
async def client(served: RunningEngine) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=served.url, timeout=30) as http:
        yield http


@pytest.fixture(scope="session")
def shared(micro: ModelWeights) -> Iterator[RunningEngine]:
    """One server for the tests that only look at answers, never at counters or the cache."""
    with run_engine(EngineConfig(model="tiny", kv_blocks=64), micro) as running:
        yield running


@pytest.fixture
async def shared_client(shared: RunningEngine) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=shared.url, timeout=30) as http:
        yield http
