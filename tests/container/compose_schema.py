"""Holds compose files against their schema: compose_schema.py FOLDER FILE..., with the schema in the folder."""

import json
import sys
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]  # in the environment of `make image-test` alone
import yaml

schema = json.loads((Path(sys.argv[1]) / "compose_spec.json").read_text())
for name in sys.argv[2:]:
    tree = yaml.safe_load(Path(name).read_text())
    for where, section in list(tree.items()):
        if where.startswith("x-") or where == "name":  # parts that others repeat; a name is younger than the schema
            del tree[where]
        elif where == "services":
            for service in section.values():
                service.pop("<<", None)
    found = sorted(jsonschema.Draft7Validator(schema).iter_errors(tree), key=str)
    for error in found:
        sys.stderr.write(f"{name}: {'.'.join(map(str, error.path))}: {error.message}\n")
    if found:
        sys.exit(1)
