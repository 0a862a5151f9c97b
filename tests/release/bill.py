"""The software bill of materials: what is installed with the wheel and its extras but `reference`, in CycloneDX 1.6.

`cyclonedx-py` lists the environment. The gateway itself is told by pyproject.toml, which has no version, so that and
the hashes of its two files are added here, and the whole is validated again.
"""

import json
from pathlib import Path
from typing import Final

from tests.release.builds import Built, Commit, digest
from tests.release.programs import output_of

SCHEMA: Final = "1.6"
_VALIDATION: Final = """
import sys
from pathlib import Path
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
problem = JsonStrictValidator(SchemaVersion.V1_6).validate_str(Path(sys.argv[1]).read_text())
sys.exit(str(problem) if problem else 0)
"""


def write_bill(commit: Commit, built: Built, tools: Path, environment: Path, file: Path) -> str:
    """Writes the file, validated; the same bytes for the same commit and environment. Says how much is in it."""
    env = {"SOURCE_DATE_EPOCH": str(commit.committed_at_s)}
    output_of(
        *(tools.parent / "cyclonedx-py", "environment", "--output-reproducible", "--spec-version", SCHEMA),
        *("--pyproject", commit.checkout / "pyproject.toml", "--of", "JSON", "-o", file, environment),
        cwd=file.parent,
        env=env,
    )
    bill = json.loads(file.read_text())
    root = bill["metadata"]["component"]
    root["version"] = built.version
    root["purl"] = f"pkg:pypi/prefixgate@{built.version.replace('+', '%2B')}"
    root["externalReferences"] = [
        *root.get("externalReferences", ()),
        *(
            {
                "type": "distribution",
                "url": each.name,
                "hashes": [{"alg": "SHA-256", "content": digest(each)}],
            }
            for each in (built.wheel, built.sdist)
        ),
        {"type": "vcs", "url": ".", "comment": f"commit {commit.sha}"},
    ]
    file.write_text(json.dumps(bill, indent=1, sort_keys=True) + "\n")
    output_of(tools, "-c", _VALIDATION, file, cwd=file.parent)
    return f"{len(bill['components'])} components, valid CycloneDX {SCHEMA}"
