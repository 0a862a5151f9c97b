# The gateway with its extras. Base images can be others of Debian or Ubuntu that have Python 3.11 or later with venv and pip:
#   docker build --build-arg BASE=registry.example.com/python:3.11-slim-bookworm --build-arg VERSION=0.1.0 .
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS build
# Of the tag; empty: what pyproject.toml says of a tree without git.
ARG VERSION=""
# Time of the commit, in seconds: the wheel of a second build has the same bytes. 1980 is the oldest that it can have.
ARG SOURCE_DATE_EPOCH=315532800
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /src
# All packages by their hashes, as wheels: nothing is compiled, and nothing of another index can take a name's place.
# A mirror of packages is a secret of the build, `--secret id=pip,src=pip.conf`, and is in no layer.
COPY requirements.lock container/build.lock ./
RUN --mount=type=secret,id=pip,target=/etc/pip.conf \
    python3 -m venv /build \
    && /build/bin/python -m pip install --require-hashes --only-binary :all: -r build.lock \
    && python3 -m venv --without-pip /opt/prefixgate \
    && /build/bin/python -m pip --python /opt/prefixgate/bin/python install \
        --require-hashes --only-binary :all: --no-compile -r requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY gateway gateway
COPY prefix_index prefix_index
COPY backends backends
COPY billing billing
# Modules are compiled here, since nobody may write there later, and held against their sources by nobody.
RUN ${VERSION:+env SETUPTOOLS_SCM_PRETEND_VERSION=${VERSION}} \
        /build/bin/python -m pip wheel --no-deps --no-build-isolation --wheel-dir /wheel . \
    && /build/bin/python -m pip --python /opt/prefixgate/bin/python install --no-deps --no-index --no-compile /wheel/*.whl \
    && /opt/prefixgate/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/prefixgate/lib \
    && mkdir -p /state/prefixgate /state/etc
COPY container/healthcheck.py /opt/prefixgate/healthcheck.py

FROM ${BASE}
ARG VERSION=""
LABEL org.opencontainers.image.title="prefixgate" \
      org.opencontainers.image.description="A proxy in front of LLM servers that sends each request to the one that holds its prefix" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
RUN echo 'prefixgate:x:65532:65532:prefixgate:/var/lib/prefixgate:/usr/sbin/nologin' >> /etc/passwd \
    && echo 'prefixgate:x:65532:' >> /etc/group
COPY --from=build /opt/prefixgate /opt/prefixgate
COPY --from=build --chown=65532:65532 /state/prefixgate /var/lib/prefixgate
COPY --from=build /state/etc /etc/prefixgate
ENV PATH=/opt/prefixgate/bin:$PATH HOME=/var/lib/prefixgate PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
WORKDIR /var/lib/prefixgate
USER 65532:65532
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=6 \
    CMD ["python", "-I", "/opt/prefixgate/healthcheck.py"]
ENTRYPOINT ["prefixgate"]
CMD ["serve", "-c", "/etc/prefixgate/prefixgate.yaml"]
