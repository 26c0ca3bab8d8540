# Short verbs over a virtual environment this file makes itself. Needs Python >= 3.11 and make, nothing else.
PYTHON ?= python3
PIP = .venv/bin/python -m pip install --quiet --disable-pip-version-check
PYTEST_WORKERS ?= 4
PYTEST = .venv/bin/pytest -n $(PYTEST_WORKERS) --dist loadgroup --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help up scale setup test check docs screenshots bench chaos kills simulate sbom lock clean

help:  ## list the verbs
	@awk -F':.*## ' '/^[a-z]+:.*## /{printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

up: .venv/runtime  ## install, start everything, load a demo hall, print the address; Ctrl-C stops
	@.venv/bin/aisle up --demo

scale: .venv/runtime  ## the same on Apache Kafka, a store cluster and two processes a role, on this machine
	@deploy/fetch-kafka.sh
	@AISLE_DATA_DIR=.aisle-scale .venv/bin/aisle scale --demo

setup: .venv/development  ## install only

test: .venv/development  ## install and run the whole suite against real servers
	@tests/install-programs.sh
	$(PYTEST)

check: .venv/development  ## lint, types, import contracts, tidy, deployment files
	.venv/bin/ruff check src tests bench docs
	.venv/bin/ruff format --check src tests bench docs
	.venv/bin/mypy
	.venv/bin/lint-imports
	.venv/bin/pytest --no-servers tests/test_tidy.py tests/test_docs.py tests/test_supply_chain.py tests/test_deploy.py

bench: .venv/development  ## run every benchmark and keep the figures
	.venv/bin/python -m bench.run_all

chaos: .venv/development  ## people buy while everything breaks, MINUTES (10) long, from SEED; OUT= keeps the result
	@.venv/bin/python -m tests.chaos.soak --minutes $(or $(MINUTES),10) $(if $(SEED),--seed $(SEED)) \
		$(if $(OUT),--out $(OUT))

kills: .venv/development  ## the scripted fault tests, those with dice for MINUTES (10) from SEED on
	CHAOS_SEED=$(SEED) CHAOS_MINUTES=$(or $(MINUTES),10) $(PYTEST) \
		-o faulthandler_timeout=0 tests/chaos tests/scale tests/penstock/test_kills.py tests/penstock/test_transactions_crash.py
	.venv/bin/pytest --scale tests/stories

simulate: .venv/development  ## HISTORIES from SEED (0) on in PROCESSES (2), kept in INTO; SEED alone tells one in full
	@.venv/bin/python -m tests.simulation --seed $(or $(SEED),0) $(if $(HISTORIES)$(if $(SEED),,1), \
		--histories $(or $(HISTORIES),1000) --processes $(or $(PROCESSES),2) --into $(or $(INTO),bench/results/simulation.json))

screenshots: .venv/development  ## take the pictures of the pages anew, from a system it starts (needs Chromium)
	@tests/install-programs.sh
	.venv/bin/python docs/pictures/take_screenshots.py

docs: .venv/development  ## write the reference pages that are drawn from the code
	.venv/bin/python docs/generate.py

sbom: .venv/runtime  ## write a CycloneDX bill of materials and the licences of what Aisle runs with to dist/
	$(PYTHON) -m venv .venv/sbom
	.venv/sbom/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-sbom.txt
	@mkdir -p dist
	.venv/sbom/bin/cyclonedx-py requirements --pyproject pyproject.toml --mc-type application --output-reproducible \
		--of JSON -o dist/aisle.cdx.json requirements.txt
	.venv/bin/python docs/licences.py > dist/licences.txt

lock:  ## pin every dependency with its hashes (needs uv)
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --extra build pyproject.toml -o requirements.txt
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --extra build --extra dev -c requirements.txt pyproject.toml -o requirements-dev.txt
	echo cyclonedx-bom | uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-annotate - -o requirements-sbom.txt

clean:  ## remove the environment, the data and the caches
	rm -rf .venv .aisle .aisle-scale .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build

.venv/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Aisle needs Python 3.11 or newer")'
	$(PYTHON) -m venv .venv

# `up` needs a third of what the tests need, so a newcomer waits for the runtime packages only.
.venv/runtime: .venv/bin/python requirements.txt pyproject.toml
	$(PIP) --require-hashes -r requirements.txt
	$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

.venv/development: .venv/bin/python requirements-dev.txt pyproject.toml
	$(PIP) --require-hashes -r requirements-dev.txt
	$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@ .venv/runtime
