# Two commands do everything: `make up` runs Penstock on this machine, `make test` proves it.
# Both make the environment first, in .venv, which takes seconds when it is there: `make up` from requirements-run.lock,
# all others from requirements.lock, which also has the tools of development. Spark has its own environment
# (.venv-spark), because PySpark has 450 MB. Only `make spark-env` and the tests make it.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The stamp of an environment to run Penstock, and of one for development, which can also run it.
RUN_STAMP := $(VENV)/.made-run
STAMP := $(VENV)/.made
COMPILED := $(VENV)/.compiled
SPARK_VENV := .venv-spark
SPARK_STAMP := $(SPARK_VENV)/.made
SPARK_TEST_STAMP := $(SPARK_VENV)/.made-test
# The tools for the bill of materials, and an environment with what a process runs with and nothing else.
SUPPLY_VENV := .venv-supply
SBOM_VENV := .venv-sbom
SPARK_CLASSES := $(SPARK_VENV)/classes.jsa
UPGRADE ?= --upgrade
COMPILE = $(BIN)/uv pip compile --universal --generate-hashes --no-annotate --no-header --no-emit-index-url \
    --no-emit-find-links --python-version 3.11 $(UPGRADE)
BUILD = $(BIN)/uv build -q --no-build-isolation --no-create-gitignore --python $(BIN)/python
CODE := libs services tests benches
# The marks of tests that have a run of their own.
APART := not simulation and not e2e and not compose and not chaos and not upgrades and not dist and \
    not spark and not helm and not kubernetes and not stores and not streams
ARGS ?=

# Every process of the tests would compile again what it imports: a service three times its start, Spark's Python more.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help always env spark-env spark-test-env up test test-simulation test-services test-e2e test-spark test-helm \
    test-kubernetes test-dist test-stores spark-classes sbom audit dist quick e2e-compose conformance conformance-compose \
    suites streams sim sim-all mutants chaos upgrades fuzz \
    check house format previous bench bench-kafka bench-spark docs screenshots lock clean

help:  ## what there is to do
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Compiled modules of another time, or from `make env`, may be older than their sources.
up: $(RUN_STAMP)  ## run Penstock here: Kafka on 127.0.0.1:9092, the console on 127.0.0.1:8080 (ARGS="..." goes to `penstock up`)
	@$(if $(wildcard libs/src/penstock/kafkawire/*.so),$(BIN)/python deploy/compile libs/src)
	@exec $(BIN)/penstock up $(ARGS)

# The environment with Spark comes last, so that a script can make it in the background, as .ci/run does.
test: env  ## run every test
	@MAKE="$(MAKE)" tests/testkit/test-all

# Simulations never wait for real time. A long timeout, because other tests may use the processor.
test-simulation: env  ## run the simulations
	$(BIN)/pytest -m simulation -n 2 --dist worksteal --timeout 1500 tests/simulation

# The tests mostly wait for servers that start and for timeouts, so more workers than cores run. With PENSTOCK_CHECKED,
# `make check` has applied the rules of test_tidy already.
test-services: env  ## run the tests of the code, and of services with others
	$(BIN)/pytest -m "$(APART)" -n 4 --dist worksteal $(if $(PENSTOCK_CHECKED),--ignore tests/test_tidy.py)

test-e2e: env  ## run the tests of the whole, by its processes and with clients
	$(BIN)/pytest -m "e2e and not stores" -n 4 --dist loadfile --no-loadscope-reorder tests/e2e tests/chaos

test-spark: env spark-test-env spark-classes  ## run the tests that need Spark
	$(SPARK_VENV)/bin/pytest -m spark -n 3 --dist loadfile --no-loadscope-reorder tests/spark

# Helm is built by Go, once for a user: four minutes of a core. Without Go the tests are skipped.
test-helm: env  ## render the Helm chart and test its objects; builds Helm first
	-@$(BIN)/python -m tests.testkit.helm >/dev/null
	$(BIN)/pytest -m helm tests/helm

# Go builds etcd and the API server, once for a user: half an hour of a core.
test-kubernetes: env  ## install the Helm chart at a real API server of Kubernetes without nodes; builds it first
	$(BIN)/pytest -m kubernetes --timeout 7200 tests/helm

quick: env  ## run the tests that take no more than a few seconds each
	$(BIN)/pytest -q -m "not slow and $(APART)" -n 2

conformance-compose: env  ## test the logins of stock clients at the containers of compose.secure.yaml; ARGS as there
	settings=$$(tests/testkit/stand-ins) && eval "$$settings" && \
	    docker compose --progress quiet build && \
	    $(BIN)/python -m tests.conformance --compose --results docs/conformance-compose.json $(ARGS)

# Low priority for the clients, because all containers together get as much time as one busy process. The project of
# agents runs last and alone: beside two others, a job of the compactor took more than five minutes.
e2e-compose: env  ## build, start, scale and break the compose project; gets an engine and images where there are none
	settings=$$(tests/testkit/stand-ins) && eval "$$settings" && \
	    docker compose -f compose.yaml -f tests/compose/clients.yaml --profile client --profile agents --progress quiet build && \
	    export PENSTOCK_E2E_IMAGES=built agents=tests/compose/test_compose_agents.py && \
	    nice $(BIN)/pytest -m compose -n 2 --dist loadfile -rP --ignore "$$agents" tests/compose && \
	    nice $(BIN)/pytest -m compose -rP "$$agents"

# The repository keeps the results; `make docs` puts them on the compatibility page.
conformance: env  ## test stock clients and Kafka's tools; ARGS="--allow-missing" and others
	$(BIN)/python -m tests.conformance --results docs/conformance.json $(ARGS)

# For nightly runs: hours. The repository keeps the results; `make docs` puts them on the page of suites.
suites: env  ## run test suites of other projects beside Apache Kafka; ARGS="--suite franz-go --only TestPing"
	$(BIN)/python -m tests.suites --results docs/suites.json $(ARGS)

streams: env  ## kill instances of Kafka Streams and gateways while it counts; needs Java and Maven, for nightly runs
	$(BIN)/pytest -m streams -rP tests/streams

# The time of the commit makes the same bytes of the same commit. A folder of its own, because pip takes one wheel of two.
dist: env  ## make the wheel of all of Penstock and its source archive, in dist
	@rm -rf dist
	@export SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct); $(BUILD) --out-dir dist \
	    $(if $(wildcard libs/src/penstock/kafkawire/*.so),&& PENSTOCK_BUILD=compiled $(BUILD) --wheel --out-dir dist/compiled)
	@find dist -type f

# A Python that this machine has not is skipped, with a line that says so; 3.11 is needed.
test-dist: dist  ## test the wheel in fresh environments of each Python that this machine has
	$(BIN)/pytest -m dist -n 2 -rPs tests/dist

# The servers are built and installed in the folder of the user's caches, which takes minutes the first time.
test-stores: env  ## run the contract of stores on Google's and Azure's, and `penstock doctor store` on every store; needs Go and npm
	$(BIN)/pytest -m stores -n 2 --dist loadfile --timeout 2400 tests
	$(BIN)/python -m tests.testkit.clouds

sim: env  ## run simulations again with all that happens in them, SEED=n or SEED="n m"
	@$(BIN)/python -m tests.testkit.sim $(SEED)

sim-all: env  ## simulate 2,000 seeds
	PENSTOCK_SIM_SEEDS=2000 $(BIN)/pytest -q -m simulation -n 2 --dist worksteal tests/simulation

mutants: env  ## plant each small fault in the code, and report which tests find it; ARGS="NAME --jobs 4"
	$(BIN)/python -m tests.testkit.mutants.sweep $(ARGS)

chaos: env  ## kill and pause processes at random under load, for MINUTES=10; SEED=n for the same order, SHAPE=agents or separate
	PENSTOCK_CHAOS_MINUTES="$(MINUTES)" PENSTOCK_CHAOS_SEED="$(SEED)" PENSTOCK_CHAOS_SHAPE="$(SHAPE)" $(BIN)/pytest -m chaos -s tests/chaos

upgrades: env  ## move the journal, and upgrade the compose project from the previous version; for nightly runs
	settings=$$(tests/testkit/stand-ins) && eval "$$settings" && nice $(BIN)/pytest -m upgrades -rP tests/upgrades

previous: env  ## make the fixture of the previous version from COMMIT, at each release
	$(BIN)/python -m tests.testkit.previous $(COMMIT)

fuzz: env  ## send hostile frames of all APIs beside an ordinary client, for MINUTES=1; SEED=n sends the same again
	$(BIN)/python -m tests.testkit.fuzz --minutes $(or $(MINUTES),1) $(if $(SEED),--seed $(SEED))

check: env  ## format, lint, types, import contracts and the rules of test_tidy, as CI runs them
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -q tests/test_tidy.py
	$(BIN)/python -m tests.testkit.docs --check

house: env  ## measure how the code is arranged and how it reads
	$(BIN)/python -m tests.testkit.house

format: env  ## format the code and mend what the linter can
	$(BIN)/ruff check --fix-only $(CODE)
	$(BIN)/ruff format $(CODE)

bench: env  ## measure against the budgets; a table here, JSON in benches/results
	$(BIN)/python -m benches $(ARGS)

# Kafka and its Java client are the pinned ones of the conformance tests, in the folder of the user's caches.
bench-kafka: env  ## measure beside Apache Kafka, needs Java; ARGS="--quick --line raw-produce-16k", ARGS=--list
	@$(BIN)/python -m benches.kafka $(ARGS)

bench-spark: env spark-test-env  ## measure what runs on Spark
	$(SPARK_VENV)/bin/python -m benches.merging
	$(SPARK_VENV)/bin/python -m benches.keys
	$(SPARK_VENV)/bin/python -m benches.topics

screenshots: env  ## make the pictures of the console anew, in docs/img, with Chromium from Debian; PAGES="topics user": only these
	$(BIN)/python -m tests.testkit.screenshots $(PAGES)

docs: env  ## generate the pages that come from code: APIs, settings, metrics, plots
	$(BIN)/python -m tests.testkit.docs

# From the environment, because locks have no licences.
sbom: $(SUPPLY_VENV)/.made $(SBOM_VENV)/.made  ## write the bill of materials (CycloneDX) of what runs to sbom.json, and list its licences
	@$(SUPPLY_VENV)/bin/cyclonedx-py environment --output-reproducible --of JSON --pyproject pyproject.toml \
	    -o sbom.json $(SBOM_VENV)/bin/python 2>/dev/null
	@$(BIN)/python -m tests.testkit.supply.licences sbom.json

audit: env $(SUPPLY_VENV)/.made  ## look for known vulnerabilities of what runs; ends with 3 where no index knows them
	@$(SUPPLY_VENV)/bin/pip-audit --require-hashes --disable-pip --progress-spinner off --format json \
	    -r requirements-run.lock 2>/dev/null | $(BIN)/python -m tests.testkit.supply.audit

lock: env  ## pin the dependencies anew; UPGRADE= keeps what is pinned and adds what is new
	$(COMPILE) --extra schemas --extra otel --extra gcs --extra azure --group dev pyproject.toml -o requirements.lock >/dev/null
	$(COMPILE) --extra schemas --group tools --constraints requirements.lock pyproject.toml -o requirements-run.lock >/dev/null
	$(COMPILE) --extra schemas --extra spark --extra gcs --group tools --group spark --constraints requirements.lock pyproject.toml \
	    -o requirements-spark.lock >/dev/null
	$(COMPILE) --group supply -o requirements-supply.lock >/dev/null

clean:  ## remove the environment and the caches
	find libs -name '*.so' -delete
	rm -rf $(VENV) $(SPARK_VENV) $(SUPPLY_VENV) $(SBOM_VENV) sbom.json .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

env: $(STAMP) $(COMPILED)  ## make the environment for development, in .venv (PYTHON=python3.12 names its Python)

# This runs in every make, and changes the file only with the environment. So an environment of another Python is remade.
$(VENV)/.python: always
	@$(eval problem := $(shell deploy/make-venv $(VENV) $(PYTHON) $(if $(filter file,$(origin PYTHON)),default,named)))\
	    $(if $(problem),$(error $(problem)))

install = $(BIN)/uv pip install -q --python $(1)/bin/python --no-deps --no-build-isolation -e .
MADE_FROM := $(VENV)/.python pyproject.toml libs/src/penstock/version.py

# The arguments are a lock and the stamps.
define make_env
	@echo "making the environment in $(VENV) ..."
	@awk '/^uv==/ {on=1} on {print} on && !/\\$$/ {exit}' $(1) >$(VENV)/uv.lock
	@$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r $(VENV)/uv.lock
	@$(BIN)/uv pip sync -q --python $(BIN)/python --require-hashes $(1)
	@$(call install,$(VENV))
	@touch $(2)
endef

$(STAMP): $(MADE_FROM) requirements.lock
	$(call make_env,requirements.lock,$(RUN_STAMP) $(STAMP))

# An environment for development stays one.
$(RUN_STAMP): $(MADE_FROM) requirements-run.lock
	$(call make_env,$(if $(wildcard $(STAMP)),requirements.lock,requirements-run.lock),$(RUN_STAMP) $(wildcard $(STAMP)))

# Python prefers a compiled module to its source, so a change of the source makes it again.
$(COMPILED): $(STAMP) deploy/compile libs/src/penstock/kafkawire/produced_records.py
	@$(BIN)/python deploy/compile libs/src
	@touch $@

$(SUPPLY_VENV)/.made: $(STAMP) requirements-supply.lock
	$(call make_from_lock,$(SUPPLY_VENV),requirements-supply.lock)

$(SBOM_VENV)/.made: $(STAMP) requirements-run.lock
	$(call make_from_lock,$(SBOM_VENV),requirements-run.lock)

# An environment with a lock and nothing else. The arguments are its folder and the lock.
define make_from_lock
	@$(BIN)/uv venv -q --allow-existing --python $(BIN)/python $(1)
	@$(BIN)/uv pip sync -q --python $(1)/bin/python --require-hashes $(2)
	@touch $@
endef

spark-env: $(SPARK_STAMP)  ## make the environment with PySpark (450 MB), in .venv-spark, for compaction, export and audit

spark-test-env: $(SPARK_TEST_STAMP)

# PySpark comes as source, and is made into a wheel with pinned tools; uv keeps that for the next time. One make at
# a time: a second one waits, and finds it complete. The arguments are the locks, the newest of what it is made from,
# and the stamps.
define make_spark_env
	@$(BIN)/python deploy/with-lock $(VENV)/spark-env.lock sh -ec ' \
	    if [ $@ -nt $(2) ] && [ $@ -nt requirements-spark.lock ]; then exit; fi; \
	    rm -f $(SPARK_STAMP); \
	    echo "making the environment with Spark in $(SPARK_VENV) ..."; \
	    problem=$$(deploy/make-venv $(SPARK_VENV) $(BIN)/python named --without-pip); \
	    test -z "$$problem" || { echo "$$problem"; exit 1; }; \
	    $(BIN)/uv pip sync --python $(SPARK_VENV)/bin/python --require-hashes \
	        --build-constraints requirements-spark.lock $(1); \
	    $(call install,$(SPARK_VENV)); \
	    touch $(3)'
endef

$(SPARK_STAMP): $(RUN_STAMP) requirements-spark.lock
	$(call make_spark_env,requirements-spark.lock $(if $(wildcard $(SPARK_TEST_STAMP)),requirements.lock),$(RUN_STAMP),$(SPARK_STAMP) $(wildcard $(SPARK_TEST_STAMP)))

$(SPARK_TEST_STAMP): $(STAMP) requirements-spark.lock
	$(call make_spark_env,requirements-spark.lock requirements.lock,$(STAMP),$(SPARK_STAMP) $(SPARK_TEST_STAMP))

spark-classes: $(SPARK_CLASSES)

# The tests start some thirty Javas; with this file each takes a third less of a core.
$(SPARK_CLASSES): $(SPARK_TEST_STAMP) tests/testkit/java_classes.py
	@$(SPARK_VENV)/bin/python -m tests.testkit.java_classes
