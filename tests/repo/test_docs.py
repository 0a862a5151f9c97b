"""What the product has is documented: every key, metric, error and command."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from pydantic import BaseModel

from backends.reference.model_files import FORMAT_VERSION
from billing import PriceBook
from billing.prices.live import LivePrices
from gateway.admin import AdminParts, admin_app
from gateway.cli import cli
from gateway.config import Backend, Config, Model, load_config
from gateway.cost_pages import cost_router
from gateway.decision_log import DecisionLog
from gateway.disaggregation.pages import disaggregation_router
from gateway.discovery_sections import DnsSource, KubernetesSource
from gateway.divergence.pages import lint_router
from gateway.endpoint_pages import endpoint_router
from gateway.errors import GatewayError
from gateway.fixes.pages import fix_router
from gateway.model_routes import route_router
from gateway.price_pages import price_router
from gateway.queue_config import QueueClass
from gateway.report_pages import ReportPages, report_router
from gateway.routes_config import Canary, ModelRoute, RouteArm
from gateway.telemetry import Telemetry
from gateway.templates import template_router
from gateway.types import Reason
from gateway.verification_pages import verification_router
from prefix_index.kv_events.feed_types import FeedState

DOCS = Path(__file__).parents[2] / "docs"
README = DOCS.parent / "README.md"


def config_keys(section: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in section.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from config_keys(kind, f"{prefix}{name}.")
        else:
            yield prefix + name


def admin_openapi() -> dict[str, Any]:
    """The document of the admin API; none of what it shows is asked."""
    nothing: Any = SimpleNamespace(index=None, fleet=None, receipts=None, feeds=None, is_shared=False, config=None)
    prices = price_router(LivePrices(None, lambda: datetime.now(UTC)))
    reports, templates, endpoints = report_router(ReportPages("")), template_router(None), endpoint_router(nothing)
    routers = (
        *(prices, reports, templates, endpoints, route_router(None), cost_router(nothing), fix_router(nothing)),
        *(verification_router(nothing, nothing), lint_router(nothing, nothing, nothing)),
        disaggregation_router(nothing, nothing, nothing),
    )
    parts = AdminParts(DecisionLog(), nothing, nothing, nothing, nothing, routers)
    return admin_app("token", parts).openapi()


def documented(page: str) -> set[str]:
    return set(re.findall(r"`([^`\n]+)`", (DOCS / page).read_text()))


def test_every_config_key_is_documented() -> None:
    wanted = {*config_keys(Config), *config_keys(Backend, "backends[]."), *config_keys(Model, "models.<name>.")}
    wanted |= {*config_keys(DnsSource, "discovery.dns[].")}
    wanted |= {*config_keys(KubernetesSource, "discovery.kubernetes[].")}
    wanted |= set(config_keys(QueueClass, "queue.classes[]."))
    wanted |= {*config_keys(ModelRoute, "model_routes[]."), *config_keys(RouteArm, "model_routes[].arms[].")}
    wanted |= {*config_keys(Canary, "model_routes[].canary.")}
    assert wanted - documented("config.md") == set()


def test_every_metric_is_documented() -> None:
    assert Telemetry().names() - documented("metrics.md") == set()


def test_every_error_code_is_documented_with_its_status() -> None:
    text = (DOCS / "errors.md").read_text()
    missing = [e.code for e in GatewayError.__subclasses__() if not re.search(rf"`{e.code}`\s*\|\s*{e.status}\b", text)]
    assert missing == []


def test_every_reason_is_documented() -> None:
    assert {reason.value for reason in Reason} - documented("api.md") == set()


def test_every_header_of_ours_is_documented() -> None:
    sources = "".join(path.read_text() for path in (DOCS.parent / "gateway").rglob("*.py"))
    headers = set(re.findall(r'b"(x-prefixgate-[a-z-]*[a-z])"', sources))
    assert "x-prefixgate-endpoint" in headers
    text = (DOCS / "api.md").read_text()
    assert {header for header in headers if f"`{header}" not in text} == set()


def commands_of(group: object, before: str = "prefixgate") -> Iterator[str]:
    """Every command that does something, with the groups it stands in."""
    for name, command in getattr(group, "commands", {}).items():
        if getattr(command, "commands", None):
            yield from commands_of(command, f"{before} {name}")
        else:
            yield f"{before} {name}"


def test_every_command_is_documented() -> None:
    names = set(commands_of(typer.main.get_command(cli)))
    assert {"prefixgate serve", "prefixgate keys new", "prefixgate index top"} <= names
    text = (DOCS / "operations.md").read_text()
    assert {name for name in names if f"`{name}" not in text} == set()


def test_every_path_of_the_admin_api_is_documented() -> None:
    paths = {
        f"{method.upper()} {re.sub(r'{[^}]*}', '{id}', path)}"
        for path, methods in admin_openapi()["paths"].items()
        for method in methods
    }
    assert "GET /admin/index" in paths
    text = (DOCS / "api.md").read_text()
    assert {path for path in paths if not re.search(rf"`{re.escape(path)}[`?]", text)} == set()


def test_every_state_of_a_feed_is_documented() -> None:
    assert {state.value for state in FeedState} - documented("kv-events.md") == set()


@pytest.mark.parametrize("room", ["gateway", "prefix_index", "backends", "billing"])
def test_every_module_of_a_room_is_in_the_drawing_of_the_rooms(room: str) -> None:
    drawing = (DOCS / "architecture.md").read_text().partition("## Rooms")[2].partition("```\n\n")[0]
    rooms = re.split(r"^(\w+)/ ", drawing, flags=re.MULTILINE)
    drawn = set(re.findall(r"\w+\.py|\w+/", rooms[rooms.index(room) + 1]))
    modules = {path.name for path in (DOCS.parent / room).glob("*.py")} - {"__init__.py"}
    folders = {f"{path.parent.name}/" for path in (DOCS.parent / room).glob("*/__init__.py")}
    assert (modules | folders) - drawn == set()


def test_the_files_of_the_fleet_on_a_laptop_are_read_as_they_stand(tmp_path: Path) -> None:
    page = (DOCS / "quickstart.md").read_text()
    files = dict(re.findall(r"^cat > (\S+) <<END\n(.*?)^END$", page, flags=re.MULTILINE | re.DOTALL))
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    config = load_config(tmp_path / "prefixgate.yaml", {}, {})
    assert [backend.name for backend in config.backends] == ["engine-1", "engine-2"]
    assert str(config.models["tiny"].tokenizer).endswith(f".cache/prefixgate/tiny-v{FORMAT_VERSION}")
    assert str(config.prices_file) in files
    assert PriceBook.load(tmp_path / "prices.yaml").currency == "USD"


def anchors(page: Path) -> set[str]:
    """Of the headings of a page, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


def test_links_between_pages_lead_somewhere() -> None:
    for page in (README, *DOCS.rglob("*.md")):
        for target, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)", page.read_text()):
            found = page.parent / target if target else page
            assert found.exists(), f"{page.name} links to {target}"
            if anchor and found.suffix == ".md":
                assert anchor in anchors(found), f"{page.name} links to {target}#{anchor}"


def test_every_page_is_found_from_the_readme() -> None:
    linked = set(re.findall(r"\]\(docs/([^)#]+)", README.read_text()))
    assert sorted(page.name for page in DOCS.glob("*.md") if page.name not in linked) == []
