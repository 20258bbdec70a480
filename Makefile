# make test and make demo do all their set-up themselves, in .venv, with Python 3.11 or newer, make and pip.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
ifneq ($(wildcard ../shared/data),)
export ALMONER_DATA ?= $(abspath ../shared/data)
endif

.PHONY: test demo lint types docs site screenshots bench package oldest newest clean

# One thread for each of two processes: threads that wait for each other make this many times slower on two busy cores.
test: lint types
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --durations=25 --durations-min=5

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(READY)
	$(BIN)/mypy

demo: $(READY)
	$(BIN)/almoner demo --out demo --force

docs: $(READY)
	$(BIN)/python docs/generate.py

site: docs
	$(BIN)/mkdocs build --strict

screenshots: site demo
	$(BIN)/python tools/screenshots.py

bench: $(READY)
	for script in benchmarks/[a-z]*.py; do $(BIN)/python $$script || exit 1; done

# builds the source distribution, the wheel from it, and runs the wheel in a fresh environment without any extra
package:
	rm -rf dist build/package build/fresh
	$(PYTHON) -m venv build/package
	build/package/bin/python -m pip install --quiet --disable-pip-version-check build twine
	build/package/bin/python -m build --outdir dist .
	build/package/bin/python -m twine check --strict dist/*
	$(PYTHON) -m venv build/fresh
	build/fresh/bin/python -m pip install --quiet --disable-pip-version-check dist/*.whl
	cd build/fresh && bin/python -m pip check && bin/almoner --version
	cd build/fresh && bin/almoner epsilon --noise-multiplier 1.1 --sample-rate 0.01 --steps 1000 --json > epsilon.json
	cd build/fresh && bin/almoner train --help > help.txt && ! bin/almoner demo 2> missing.txt && grep -q MissingExtra missing.txt

# the oldest and the newest versions that the extras allow, each in an environment of its own
oldest newest: $(READY)
	$(BIN)/python tools/versions.py $@

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("Almoner needs Python 3.11 or newer") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(PIP) torch
	$(PIP) --editable '.[dev]'
	touch $(READY)

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis build demo dist
