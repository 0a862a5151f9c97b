"""One version, wherever it is shown."""

import asyncio
import importlib.metadata
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from gateway.cli import cli
from gateway.product_version import UNKNOWN, product_version
from tests.gateway.conftest import StartGateway
from tests.gateway.scripted_engine import answer_chat, scripted_engine


async def test_command_health_document_and_metric_show_the_version_that_is_installed(
    start_gateway: StartGateway, token_file: Path
) -> None:
    version = importlib.metadata.version("prefixgate")
    async with scripted_engine(answer_chat("Hi")) as engine:
        gateway = await asyncio.to_thread(start_gateway, engine.url, admin_token_file=token_file)
        async with httpx.AsyncClient(base_url=gateway.url, headers={"authorization": "Bearer letmein"}) as client:
            health = (await client.get("/health")).json()
            document = (await client.get("/admin/openapi.json")).json()
            metrics = (await client.get("/metrics")).text
    assert health["version"] == version
    assert document["info"]["version"] == version
    assert f'prefixgate_build_info{{version="{version}"}} 1.0' in metrics.splitlines()
    assert CliRunner().invoke(cli, ["--version"]).output == f"prefixgate {version}\n"


def test_code_that_was_not_installed_says_that_its_version_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr("gateway.product_version.version", missing)
    assert product_version.__wrapped__() == UNKNOWN
