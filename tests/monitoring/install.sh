#!/usr/bin/env bash
# Unpacks Prometheus and promtool from Debian's package, without installing it, and gets what Grafana says of its
# dashboards' form, as a package of Python carries it. A second run does nothing.
# Usage: install.sh FOLDER; PROMETHEUS_BIN=FOLDER takes the two programs from there instead, as where apt is not at hand.
set -euo pipefail

FOLDER=$1
PYTHON=${PYTHON:-python3}
SCHEMA='grafana-foundation-sdk==1769699998!10.1.0'  # Apache-2.0; the form of Grafana 10.1, which later ones read too

if test -e "$FOLDER/installed"; then
    exit 0
fi
rm -rf "$FOLDER"
mkdir -p "$FOLDER/bin" "$FOLDER/package"
FOUND=${PROMETHEUS_BIN:-}
if test -z "$FOUND" && command -v prometheus > /dev/null && command -v promtool > /dev/null; then
    FOUND=$(dirname "$(command -v promtool)")
fi
if test -z "$FOUND"; then
    command -v apt-get > /dev/null || { echo "no apt-get here: set PROMETHEUS_BIN to the folder of prometheus and promtool" >&2; exit 1; }
    cd "$FOLDER/package"
    apt-get download -qq prometheus 2> /dev/null || { apt-get update -qq && apt-get download -qq prometheus; }
    dpkg-deb -x prometheus_*.deb .
    FOUND=$PWD/usr/bin
    cd - > /dev/null
fi
cp "$FOUND/prometheus" "$FOUND/promtool" "$FOLDER/bin/"
rm -rf "$FOLDER/package"
"$PYTHON" -m pip install --quiet --disable-pip-version-check --no-deps --target "$FOLDER/lib" "$SCHEMA"
touch "$FOLDER/installed"
"$FOLDER/bin/promtool" --version | head -1
