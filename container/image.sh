#!/usr/bin/env bash
# Builds the image with what this machine has: docker, podman or buildah. Usage: image.sh NAME:TAG, or image.sh --engine,
# which only says with what.
#   ENGINE=PROGRAM  that one      BASE=IMAGE  another base      VERSION=0.1.0  the version, where the tree has no tag
#   BUILD_ARGS=...  more for the build, such as `--secret id=pip,src=pip.conf` or `--network host`
set -euo pipefail
cd "$(dirname "$0")/.."

usable() {
    command -v "$1" > /dev/null && { test "$1" = buildah || "$1" info > /dev/null 2>&1; }
}

for each in ${ENGINE:-docker podman buildah}; do
    if usable "$each"; then
        engine=$each
        break
    fi
done
if test -z "${engine:-}"; then
    echo "an image is built by docker, podman or buildah, and ${ENGINE:-none of them} works here: apt-get install buildah" >&2
    exit 1
fi
if test "$1" = --engine; then
    echo "$engine"
    exit 0
fi
build=(build)
# What is made is an image of Docker's form: that of the OCI has no health check.
test "$engine" = docker || build=(build --format docker --layers)
times=$(git log -1 --format=%ct 2> /dev/null || echo 315532800)
# shellcheck disable=SC2086  # several words are meant
exec "$engine" "${build[@]}" --build-arg SOURCE_DATE_EPOCH="$times" ${BASE:+--build-arg BASE="$BASE"} \
    ${VERSION:+--build-arg VERSION="$VERSION"} ${BUILD_ARGS:-} --tag "$1" .
