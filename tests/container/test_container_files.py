"""What can be said of image, locks and compose file without building one: `make image-test` does the rest."""

import fnmatch
import hashlib
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from gateway.config import load_config
from gateway.keys_file import read_keys_file

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "container" / "compose"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCKS = ("requirements.lock", "container/build.lock")


def locked(name: str) -> dict[str, str]:
    """Versions of a lock, by name. Raises ValueError for an entry without a hash."""
    entries = re.split(r"\n(?=\S)", (ROOT / name).read_text().replace("\\\n", ""))
    found: dict[str, str] = {}
    for entry in entries:
        if "--hash=sha256:" not in entry:
            raise ValueError(f"{name}: {entry[:40]} has no hash")
        package, _, rest = entry.partition("==")
        found[canonicalize_name(package)] = rest.split()[0]
    return found


def extras() -> list[str]:
    found = re.search(r'^EXTRAS="([^"]*)"', (ROOT / "container" / "lock.sh").read_text(), re.MULTILINE)
    assert found is not None
    return found[1].split()


def asked_for() -> list[Requirement]:
    optional = PROJECT["project"]["optional-dependencies"]
    lines = [*PROJECT["project"]["dependencies"], *(line for extra in extras() for line in optional[extra])]
    return [Requirement(line) for line in lines]


def installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def all_needed() -> Iterator[Requirement]:
    """What the product needs here, and what that needs, as the installed packages of the lock's versions say.

    Of another version, and of what is not installed, nobody here can say what it needs.
    """
    waiting, seen, versions = asked_for(), set(), locked("requirements.lock")
    while waiting:
        one = waiting.pop()
        yield one
        key = (canonicalize_name(one.name), *sorted(one.extras))
        if key in seen:
            continue
        seen.add(key)
        if installed(one.name) != versions.get(canonicalize_name(one.name)):
            continue
        waiting += [
            each
            for each in map(Requirement, requires(one.name) or ())
            if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in ("", *one.extras))
        ]


def test_the_lock_has_what_the_project_and_all_that_it_needs_ask_for() -> None:
    versions = locked("requirements.lock")
    wrong = {
        str(one) for one in all_needed() if not one.specifier.contains(versions.get(canonicalize_name(one.name), "0"))
    }
    assert wrong == set(), "make lock writes it anew"


def test_the_lock_has_nothing_that_nobody_needs() -> None:
    versions = locked("requirements.lock")
    if any(installed(one.name) != versions.get(canonicalize_name(one.name)) for one in all_needed()):
        return  # then what is needed is not known
    text = (ROOT / "requirements.lock").read_text().replace("\\\n", "")
    on_every_platform = {canonicalize_name(name) for name in re.findall(r"^([^\s=]+)==\S+ +--hash", text, re.MULTILINE)}
    assert len(on_every_platform) > 40
    assert on_every_platform - {canonicalize_name(one.name) for one in all_needed()} == set(), (
        "make lock writes it anew"
    )


def test_the_wheel_of_the_image_is_built_by_what_the_project_names() -> None:
    versions = locked("container/build.lock")
    for line in PROJECT["build-system"]["requires"]:
        one = Requirement(line)
        assert one.specifier.contains(versions[canonicalize_name(one.name)]), "make lock writes it anew"


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_names_no_place_where_packages_come_from(name: str) -> None:
    assert re.findall(r"https?:|file:|--(?:extra-)?index|--find-links|@ ", (ROOT / name).read_text()) == []


def dockerfile() -> list[str]:
    """Its instructions, a line each."""
    text = re.sub(r"^\s*#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    return [line.strip() for line in text.replace("\\\n", " ").splitlines() if line.strip()]


def let_in(path: str) -> bool:
    """Whether the rules of .dockerignore let a file into a build: the last one that fits decides."""
    found = True
    for rule in (ROOT / ".dockerignore").read_text().splitlines():
        pattern = rule.lstrip("!")
        parents = [path, *map(str, Path(path).parents)]
        if rule and not rule.startswith("#") and any(fnmatch.fnmatch(each, pattern) for each in parents):
            found = rule.startswith("!")
    return found


def test_a_build_gets_all_that_it_copies_and_no_secret() -> None:
    copied = [
        source
        for line in dockerfile()
        if line.startswith("COPY") and "--from" not in line
        for source in line.split()[1:-1]
    ]
    assert {"gateway", "requirements.lock"} <= set(copied)
    assert [source for source in copied if not (ROOT / source).exists() or not let_in(source)] == []
    for secret in (".env", "keys.yaml", ".git/config", "prefixgate.db", "container/compose/secrets/admin-token"):
        assert not let_in(secret)
    assert not let_in("gateway/__pycache__/app.cpython-311.pyc")


def test_the_image_is_one_of_a_user_without_rights_that_says_whether_it_works() -> None:
    last = dockerfile()[max(n for n, line in enumerate(dockerfile()) if line.startswith("FROM")) :]
    assert "USER 65532:65532" in last
    assert last.index("USER 65532:65532") > max(n for n, line in enumerate(last) if line.startswith(("RUN", "COPY")))
    (check,) = (line for line in last if line.startswith("HEALTHCHECK"))
    assert "healthcheck.py" in check
    assert not re.search(r"latest|curl|wget|apt", " ".join(dockerfile()))


class Page(BaseHTTPRequestHandler):
    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status)
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing."""


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1)])
def test_the_health_check_is_the_health_of_the_gateway(status: int, code: int) -> None:
    with HTTPServer(("127.0.0.1", 0), type("Other", (Page,), {"status": status})) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/health"
        arguments = [sys.executable, "-I", str(ROOT / "container" / "healthcheck.py")]
        environment = {"HEALTH_URL": url, "http_proxy": "http://127.0.0.1:9"}
        done = subprocess.run(arguments, env=environment, capture_output=True, text=True, timeout=30)
        server.shutdown()
    assert done.returncode == code, done.stderr
    assert code == 0 or url in done.stderr


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yaml").read_text())
    return found


def test_services_that_run_together_have_fixed_images_few_rights_and_a_health_check() -> None:
    for name, service in compose()["services"].items():
        image = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", service["image"])
        assert re.search(r":\w+", image), name
        assert not image.endswith(":latest"), name
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert "healthcheck" in service or service["restart"] == "no", name
        assert "privileged" not in service, name
        own = ("127.0.0.1:", "${GATEWAY_ADDRESS:-127.0.0.1}:")
        assert all(str(port).startswith(own) for port in service.get("ports", ())), name


def test_every_password_is_one_that_somebody_must_give() -> None:
    text = (ROOT / "docker-compose.yaml").read_text()
    passwords = re.findall(r"\w*(?:PASSWORD|AUTH)\w*: (.*)", text)
    assert len(passwords) >= 4
    assert all(re.fullmatch(r"\$\{\w+:\?.+\}", each) for each in passwords)
    example = (ROOT / ".env.example").read_text()
    named = set(re.findall(r"\$\{(\w+)", text))
    assert named == set(re.findall(r"^#?(\w+)=", example, re.MULTILINE))
    assert set(re.findall(r"^(\w+)=$", example, re.MULTILINE)) == set(re.findall(r"\$\{(\w+):\?", text))
    defaults = re.findall(r"^#(\w+)=(.*)$", example, re.MULTILINE)
    assert [name for name, default in defaults if f"{{{name}:-{default}}}" not in text] == []


def test_the_gateway_takes_the_configuration_of_the_compose_file_and_has_time_to_stop() -> None:
    config = load_config(COMPOSE / "prefixgate.yaml", {}, {})
    services = compose()["services"]
    assert {backend.url.split("/")[2].split(":")[0] for backend in config.backends} <= set(services)
    gateway = services["gateway"]
    assert {config.index.redis_password_env, config.ledger.password_env} <= set(gateway["environment"])
    limits = config.limits
    stopping = limits.drain_notice_s + limits.close_idle_s + limits.drain_s
    assert int(gateway["stop_grace_period"].removesuffix("s")) >= stopping + 15


def test_files_that_are_mounted_are_there() -> None:
    mounts = [each for service in compose()["services"].values() for each in service.get("volumes", ())]
    sources = {each.split(":")[0] for each in mounts if each.startswith("./")}
    made = {"./container/compose/secrets", "./helm/prefixgate/files/dashboards"}
    assert [source for source in sources - made if not (ROOT / source).exists()] == []
    assert {each.split(":")[0] for each in mounts if not each.startswith("./")} == set(compose()["volumes"])


def test_secrets_are_made_once_and_are_not_the_same_twice(tmp_path: Path) -> None:
    for copy in ("one", "two"):
        folder = tmp_path / copy / "container" / "compose"
        folder.mkdir(parents=True)
        (folder / "prepare.sh").write_text((COMPOSE / "prepare.sh").read_text())
        (tmp_path / copy / ".env.example").write_text((ROOT / ".env.example").read_text())
        script = ["sh", str(folder / "prepare.sh")]
        first, again = (subprocess.run(script, check=True, capture_output=True, timeout=30).stdout for _ in range(2))
        (key,) = re.findall(r"pg-[0-9a-f]{48}", first.decode())
        assert b"pg-" not in again
        (tenant,) = read_keys_file(folder / "secrets" / "keys.yaml").tenants
        assert tenant.keys[0].sha256 == hashlib.sha256(key.encode()).hexdigest()
    one, two = ((tmp_path / copy / ".env").read_text() for copy in ("one", "two"))
    passwords = re.findall(r"^[A-Z_]+=([0-9a-f]{48})$", one + two, re.MULTILINE)
    assert len(set(passwords)) == len(passwords) == 6
    assert (tmp_path / "one" / ".env").stat().st_mode & 0o077 == 0
    secrets = tmp_path / "one" / "container" / "compose" / "secrets"
    assert {path.name for path in secrets.iterdir()} == {"admin-token", "ui-token", "salt-secret", "keys.yaml"}


def test_rules_of_the_chart_become_a_file_of_prometheus(tmp_path: Path) -> None:
    target = tmp_path / "rules.yaml"
    script = [sys.executable, str(COMPOSE / "rules.py"), str(ROOT / "helm" / "prefixgate" / "files"), str(target)]
    subprocess.run(script, check=True, timeout=30, env=dict(os.environ))
    groups = yaml.safe_load(target.read_text())["groups"]
    assert {"prefixgate-alerts"} <= {group["name"] for group in groups}
    label = yaml.safe_load((COMPOSE / "prometheus.yml").read_text())["scrape_configs"][0]["static_configs"][0]["labels"]
    assert "NAMESPACE" not in target.read_text()
    assert f'namespace="{label["namespace"]}"' in target.read_text()
    assert all(rule.keys() >= {"expr"} for group in groups for rule in group["rules"])
