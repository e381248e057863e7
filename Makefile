# Each target does its own set-up on a fresh Debian machine with Python 3.11 or later.
SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip --disable-pip-version-check --quiet install --constraint constraints.txt
PIP_WHEEL := $(BIN)/pip --disable-pip-version-check --quiet wheel --no-deps --no-build-isolation
DATA ?= ./data
HTTP ?= 127.0.0.1:8000
WIRE ?= 127.0.0.1:8001
PYTEST_ARGS ?=
MINUTES ?= 60
NODES ?= 3
FROM ?= 10000
TO ?= 11000
N ?= 1
# One more than there are cores: a quarter of a worker's time is spent waiting for the disk.
WORKERS ?= $(shell expr $$(nproc) + 1)
COMPILED ?=
PODMAN ?= podman
# Where what is tested, measured or packed lies: the checkout, or with COMPILED=1 its compiled copy.
TREE := $(if $(COMPILED),build/compiled,.)
PYTHON_THERE := cd $(TREE) && $(CURDIR)/$(BIN)/python
# What wheel, deb and image ship is compiled; PLAIN=1 leaves the compiler out.
PLAIN ?=
SHIPPED := $(if $(PLAIN),.,build/compiled)
WHEEL_SHIPPED = rm -rf build/shipped && cd $(SHIPPED) && $(CURDIR)/$(BIN)/python -m hatchling build -t wheel -d $(CURDIR)/build/shipped
# The shell alone is not to be had everywhere: there chromium does, for twice the processor.
FOR_TESTS := .ci/packages curl faketime 'chromium-headless-shell|chromium' etcd-server
# What is compiled of sources and tests is kept for the other workers and the next run, also where the environment says
# not to: it is most of what collecting them takes.
KEPT := env -u PYTHONDONTWRITEBYTECODE PYTHONPYCACHEPREFIX=$(CURDIR)/build/pycache PYTHONUNBUFFERED=1
PYTEST = cd $(TREE) && $(KEPT) $(CURDIR)/$(BIN)/python -m pytest --numprocesses $(WORKERS)
SOURCES := protocol language storage actors surfaces bench compiling tests examples

CLUSTER := cluster-status cluster-kill cluster-pause cluster-resume cluster-cut cluster-heal cluster-chaos cluster-down

.PHONY: help run compiled test test-profile check clients test-hard mutants seeds bench floor builds starts soak cluster $(CLUSTER) docs images demo format wheel deb image cases-accept clean
.DEFAULT_GOAL := test

help: ## the targets
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 17

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or later is needed (PYTHON=... names one)" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || .ci/packages python3-venv
	$(PYTHON) -m venv .venv

.venv/.node: pyproject.toml constraints.txt clients/python/pyproject.toml | $(BIN)/python
	$(PIP) --editable . --editable clients/python
	@touch $@

.venv/.test: .venv/.node
	$(PIP) --editable '.[test]'
	@touch $@

# Apart from the rest: it would enter itself into every run of pytest.
.venv/schemathesis/bin/st: | $(BIN)/python
	$(PYTHON) -m venv .venv/schemathesis
	.venv/schemathesis/bin/pip --disable-pip-version-check --quiet install 'schemathesis>=4.32,<5'

.venv/.demo: .venv/.node
	$(PIP) --editable '.[demo]'
	@touch $@

.venv/.bench: .venv/.node
	$(PIP) --editable '.[bench]'
	@touch $@

.venv/.mutants: .venv/.test
	$(PIP) --editable '.[mutants]'
	@touch $@

.venv/.compiled: .venv/.test
	$(PIP) --editable '.[compiled]'
	@touch $@

# Installing the node has written the pages; this is for those that have changed since.
console/docs/index.html: docs/html.py $(wildcard *.md docs/*.md clients/*/README.md examples/*/README.md) | .venv/.node
	$(BIN)/python -m docs.html

.venv/.ship: .venv/.compiled
	$(PIP) --editable '.[ship]'
	@touch $@

run: .venv/.node console/docs/index.html $(if $(COMPILED),compiled) ## serve ./data, HTTP on :8000, wire on :8001; DATA=, HTTP=, WIRE= change these, COMPILED=1 the build
	@$(if $(COMPILED),,echo "the plain build; make run COMPILED=1 compiles the hot modules first, in minutes")
	$(PYTHON_THERE) -m surfaces.command.main $(abspath $(DATA)) --http $(HTTP) --serve $(WIRE)

compiled: .venv/.compiled ## the hot modules as C, in a copy of the tree: build/compiled. COMPILED=1 has the targets below use it
	@command -v cc >/dev/null || .ci/packages gcc libc6-dev
	@test -e "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" || .ci/packages python3-dev
	$(BIN)/python -m compiling

test: .venv/.test $(if $(COMPILED),compiled) ## the suite; COMPILED=1: of the compiled tree
	@$(FOR_TESTS)
	@echo "$(WORKERS) workers collect the tests, which takes each of them some seconds"
	$(PYTEST) --dist loadfile --max-worker-restart 0 $(PYTEST_ARGS)

test-profile: override PYTEST_ARGS += --record-durations
test-profile: test ## the suite, and what it takes: seconds and starts by folder and test; keeps the seconds by file, which order the next run

check: .venv/.test ## format, lint, types, import directions
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy $(SOURCES) clients/python
	$(BIN)/python -m pytest -q tests/architecture

clients: ## build and check the Go, TypeScript, Rust and Kotlin clients with their testees, each where its toolchain is installed
	@command -v go >/dev/null || echo "not installed: golang-go"
	! command -v go >/dev/null || (cd clients/go && ./lint && go test $(if $(shell command -v cc),-race) ./...)
	@command -v npm >/dev/null || echo "not installed: nodejs npm"
	! command -v npm >/dev/null || (cd clients/typescript && npm ci --ignore-scripts && npm test && npm run lint)
	@command -v cargo >/dev/null || echo "not installed: cargo"
	! command -v cargo >/dev/null || (cd clients/rust && export CARGO_TARGET_DIR=$(CURDIR)/build/rust && cargo fmt --check && \
		cargo clippy --all-features --all-targets --locked -- -D warnings && cargo test --all-features --locked && \
		RUSTDOCFLAGS='-D warnings' cargo doc --all-features --no-deps --locked)
	@command -v mvn >/dev/null || echo "not installed: maven"
	! command -v mvn >/dev/null || (cd clients/kotlin && mvn --batch-mode --quiet --activate-profiles lint verify)

format: .venv/.test ## rewrite the files in the form that check asks for
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

test-hard: export WHOLE_SWEEPS=$(WHOLE)
test-hard: .venv/.ship .venv/.bench .venv/schemathesis/bin/st $(if $(COMPILED),compiled) ## tier P: power cuts, syscall faults, ceilings, fuzzing; WHOLE=1 runs all seeds of the longest sweeps
	@$(FOR_TESTS)
	@.ci/packages strace e2fsprogs xfsprogs btrfs-progs quota util-linux mount eatmydata testssl.sh prometheus etcd-client openssl debhelper lintian procps systemd systemd-container buildah podman runc mmdebstrap
	@command -v go >/dev/null || .ci/packages golang-go
	@command -v npm >/dev/null || .ci/packages nodejs npm
	@command -v mvn >/dev/null || .ci/packages 'openjdk-17-jdk-headless|default-jdk-headless' maven
	$(PYTEST) -m hard --timeout 1800 --dist loadfile $(PYTEST_ARGS)

mutants: .venv/.mutants ## small faults in the sources, and whether tests see them; ROOM=storage SAMPLE=40 SEED=1
	$(BIN)/python -m tests.mutants $(if $(ROOM),--room $(ROOM)) $(if $(SAMPLE),--sample $(SAMPLE)) $(if $(SEED),--seed $(SEED))

seeds: .venv/.test ## worlds of the simulated node, from seed FROM=10000 up to TO=11000, OF=inspects, expires, feeds or guests, or clusters: members, watched, looked_at; says which of them break a promise; SHOW=1 prints the history of each cluster
	$(BIN)/python -m tests.simulation.seeds $(FROM) $(TO) $(if $(OF),--of $(OF)) $(if $(SHOW),--show)

bench: .venv/.bench $(if $(PLAIN),,compiled) ## measure the wheel as it is shipped, beside the peers; ROW=name runs one row, PUBLISH=1 writes docs/benchmarks.md, PLAIN=1 measures the plain build
	@.ci/packages redis-server webdis wrk rabbitmq-server etcd-server postgresql dict-gcide
	$(WHEEL_SHIPPED)
	rm -rf build/installed
	$(PIP) --no-deps --target build/installed build/shipped/*.whl
	cd build/installed/storenode && PYTHONPATH=$(CURDIR):$(CURDIR)/clients/python $(CURDIR)/$(BIN)/python -m bench --top $(CURDIR) $(if $(ROW),--row $(ROW)) $(if $(PUBLISH),--publish)

floor: .venv/.bench $(if $(COMPILED),compiled) ## what a request costs the node, beside the least it can cost in Python; COMPILED=1
	$(BIN)/python -m bench.builds --floor $(if $(COMPILED),,--plain)

builds: compiled ## the compiled tree beside the plain one, in turns
	$(BIN)/python -m bench.builds

starts: .venv/.node ## size and first start of the checkout and of what dist/ holds; PODMAN="podman --runtime runc" has options of podman
	$(BIN)/python -m bench.starts --podman "$(PODMAN)"

soak: .venv/.bench ## everything at once for MINUTES=60, or SMALL=1 MINUTES=6: build/soak/ holds a table and a picture; fails when something grows
	$(BIN)/python -m bench.soak --minutes $(MINUTES) $(if $(SMALL),--small)

cluster: .venv/.node ## etcd and NODES=3 secured nodes below ./cluster/, with how to use them; again: start what does not run
	@.ci/packages etcd-server
	@$(BIN)/python -m tests.cluster up --nodes $(NODES)

cluster-status: ## who leads, who is in sync, what is cut off
cluster-kill: ## SIGKILL to the node N=1, or to whoever leads: N=leader
cluster-pause: ## SIGSTOP
cluster-resume: ## it runs again: what was killed is started, what was paused goes on
cluster-cut: ## nothing goes to it or comes from it any more
cluster-heal: ## nothing is cut any more
cluster-chaos: ## all of that by chance for MINUTES=5, under load, and what became of it
cluster-down: ## ends all of it and removes ./cluster/

cluster-chaos: MINUTES = 5
$(CLUSTER): cluster-%: .venv/.node
	@$(BIN)/python -m tests.cluster $* --node $(N) --minutes $(MINUTES)

images: .venv/.test ## take the pictures of the console that the pages show, into docs/images/
	@.ci/packages chromium
	$(BIN)/python -m tests.console.images

demo: .venv/.demo ## load real data through the client, ask it ten questions
	$(BIN)/python -m bench.demo

docs: .venv/.test ## write the generated pages of docs/, and all of them as the console shows them
	$(BIN)/python -m docs.generate

wheel: .venv/.ship $(if $(PLAIN),,compiled) ## node and client as files in dist/, for pip install: the node compiled for this Python, and plain for any; PLAIN=1: only plain
	rm -f dist/*.whl
	$(BIN)/python -m hatchling build -t wheel -d dist
	@mkdir -p build && rm -rf build/client && cp -r clients/python build/client  # in place it would leave a copy of the sources
	$(PIP_WHEEL) --wheel-dir dist build/client
	$(if $(PLAIN),,$(WHEEL_SHIPPED) && cd $(CURDIR) && PATH=$(CURDIR)/$(BIN):$$PATH $(BIN)/auditwheel repair --wheel-dir dist build/shipped/*.whl)
	$(BIN)/twine check --strict dist/*.whl

deb: .venv/.test $(if $(PLAIN),,compiled) ## the node as a Debian package in dist/, with its libraries and its service, for the Python of this Debian; PLAIN=1: not compiled
	@.ci/packages debhelper python3
	@mkdir -p dist
	$(WHEEL_SHIPPED)
	packaging/debian/build build/shipped/*.whl dist $(BIN)/pip

image: .venv/.test $(if $(PLAIN),,compiled) ## the node as an image, here and as a file in dist/, with the Python of this Debian; PLAIN=1: not compiled
	@.ci/packages buildah mmdebstrap python3
	@mkdir -p dist
	$(WHEEL_SHIPPED)
	packaging/image/build build/shipped/*.whl dist $(BIN)/pip

cases-accept: .venv/.test ## write the present answers into the language case files, the examples and the shell's transcript
	CASES_ACCEPT=1 $(BIN)/python -m pytest -q tests/cases tests/docs

clean: ## remove what the targets have made; the data stays
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache *.egg-info
