"""The repository keeps its own rules: small files, our names, no paths of one machine."""

import importlib.metadata
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = ("gateway", "prefix_index", "backends", "billing")


def tracked(*patterns: str) -> list[Path]:
    """Files of the project: from git where it is a checkout, else from the disk."""
    listing = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", *patterns], cwd=ROOT, capture_output=True, text=True
    )
    return [ROOT / name for name in listing.stdout.splitlines() if (ROOT / name).is_file()]


def test_no_python_file_is_longer_than_four_hundred_lines() -> None:
    files = tracked("*.py")
    assert files
    assert [f"{path.name}: {n}" for path in files if (n := len(path.read_text().splitlines())) > 400] == []


def test_no_one_else_ships_packages_of_our_names() -> None:
    owners = importlib.metadata.packages_distributions()
    assert [room for room in ROOMS if set(owners.get(room, ["prefixgate"])) != {"prefixgate"}] == []


def test_no_module_is_called_utils_common_or_helpers() -> None:
    assert [path for path in tracked("*.py") if path.stem in ("utils", "common", "helpers")] == []


def test_each_package_says_what_it_exports() -> None:
    packages = [path for room in ROOMS for path in tracked(f"{room}/**/__init__.py", f"{room}/__init__.py")]
    assert len(packages) > len(ROOMS)
    texts = {path.relative_to(ROOT).as_posix(): path.read_text() for path in packages}
    assert [name for name, text in texts.items() if text and "__all__" not in text] == []


def test_no_file_names_a_path_of_one_machine() -> None:
    marks = ("/wor" + "k/", "/ro" + "ot/", "../sha" + "red")
    files = [path for path in tracked() if path.suffix in (".py", ".md", ".lua", ".toml", ".yaml", ".jinja")]
    assert [path.name for path in files if any(mark in path.read_text(errors="replace") for mark in marks)] == []
