#!/usr/bin/env bash
# Writes requirements.lock, what the image installs, and container/build.lock, what builds the wheel in it: every package
# with the hashes of its files, for all platforms. Usage: lock.sh FOLDER, where its own tool is kept.
# What is locked stays as it is unless pyproject.toml asks for another; LOCK_ARGS=--upgrade takes the newest of all.
set -euo pipefail
cd "$(dirname "$0")/.."

FOLDER=$1
PYTHON=${PYTHON:-python3}
UV=uv==0.13.9
EXTRAS="embedded otel dns parquet epp"

if ! test -e "$FOLDER/installed"; then
    rm -rf "$FOLDER"
    "$PYTHON" -m venv "$FOLDER"
    "$FOLDER/bin/python" -m pip install --quiet --disable-pip-version-check "$UV"
    touch "$FOLDER/installed"
fi

# No configuration of this machine: the locks must not depend on a mirror that it uses.
compile() {
    "$FOLDER/bin/uv" pip compile --quiet --no-config --universal --python-version 3.11 --generate-hashes --no-header \
        --no-emit-index-url --no-emit-find-links ${LOCK_ARGS:-} "$@"
}

# shellcheck disable=SC2046  # one option for each extra
compile pyproject.toml $(printf -- '--extra %s ' $EXTRAS) --output-file requirements.lock
"$PYTHON" -c '
import pathlib, tomllib
print(*tomllib.loads(pathlib.Path("pyproject.toml").read_text())["build-system"]["requires"], sep="\n")
' | compile - --output-file container/build.lock
