# make test and make demo do all their set-up themselves, in .venv (3 GB) and .venv-demo (0.6 GB), with Python 3.11 or
# newer, make and pip.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
DEMO := .venv-demo
NEW_ENOUGH = $(PYTHON) -c 'import sys; sys.exit("Almoner needs Python 3.11 or newer") if sys.version_info < (3, 11) else None'
ifneq ($(wildcard ../shared/data),)
export ALMONER_DATA ?= $(abspath ../shared/data)
endif

# One thread for each of two processes: threads that wait for each other make this many times slower on two busy cores.
PYTEST := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --durations=25 --durations-min=5

.PHONY: test rest check demo lint types docs site versioned papers papers-full screenshots bench bench-quick package audit oldest newest clean

# the quick suite, in four minutes: every room, without servers, kills and browsers, and without what needs minutes
# (the service's fuzzing is slow; to collect it takes seconds too)
test: lint types
	$(PYTEST) -m "not (slow or server or browser)" --ignore tests/service/test_fuzz.py

# what the quick suite leaves out
rest: $(READY)
	$(PYTEST) -m "slow or server or browser"

# everything that must hold for a change
check: test rest

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(READY)
	$(BIN)/mypy --num-workers 2

# in an environment of its own, without PyTorch and the tools of developers
demo: $(DEMO)/ready
	$(DEMO)/bin/almoner demo --out demo --force

docs: $(READY)
	$(BIN)/python docs/generate.py
	$(BIN)/python tools/map.py

site: docs
	$(BIN)/mkdocs build --strict

# the site of one version, put beside those of earlier ones on the branch gh-pages: make versioned VERSION=0.1 ALIAS=latest
versioned: docs
	$(BIN)/mike deploy --update-aliases $(VERSION) $(ALIAS)
	$(if $(ALIAS),$(BIN)/mike set-default $(ALIAS))

# every program of the four papers in its quick form, then their pages from what is recorded; minutes
papers: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python experiments/papers.py --run quick --pages

# every program whole: what is recorded is not run again, so a run that was stopped goes on; days of one core
papers-full: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python experiments/papers.py --run full --pages

screenshots: site demo
	$(BIN)/python tools/screenshots.py

bench: $(READY)
	for script in benchmarks/*.py benchmarks/*/*.py; do $(BIN)/python $$script || exit 1; done

# a small form of each kind, in minutes
bench-quick: $(READY)
	$(BIN)/python benchmarks/house.py
	$(BIN)/python benchmarks/speed/import_time.py
	$(BIN)/python benchmarks/speed/filter_constant_time.py
	$(BIN)/python benchmarks/speed/filter_speed.py --quick
	$(BIN)/python benchmarks/speed/individual_charge.py
	$(BIN)/python benchmarks/speed/queries.py --events 1000000 --people 50000 --rounds 1
	$(BIN)/python benchmarks/speed/ledger_size.py --people 10000 --questions 20
	$(BIN)/python benchmarks/speed/training.py --quick --threads 1 --networks mnist
	$(BIN)/python benchmarks/speed/training_accounts.py --quick
	$(BIN)/python benchmarks/tightness/edges.py --quick
	$(BIN)/python benchmarks/tightness/odometers.py
	$(BIN)/python benchmarks/tightness/filter_table.py --quick
	$(BIN)/python benchmarks/tightness/noise.py --draws 1000000
	$(BIN)/python benchmarks/tightness/budgets.py
	$(BIN)/python benchmarks/crashes/queries.py --kills 10
	$(BIN)/python benchmarks/crashes/account.py kills --kills 2
	$(BIN)/python benchmarks/crashes/training.py --quick

# builds the source distribution, the wheel from it, and runs the wheel in a fresh environment without any extra
package:
	rm -rf dist build/package build/fresh
	$(PYTHON) -m venv build/package
	build/package/bin/python -m pip install --quiet --disable-pip-version-check build twine
	build/package/bin/python -m build --outdir dist .
	build/package/bin/python -m twine check --strict dist/*  # also that README can be shown
	test -f docs/releases/$$(ls dist/*.whl | cut -d- -f2).md
	$(PYTHON) -m venv build/fresh
	build/fresh/bin/python -m pip install --quiet --disable-pip-version-check dist/*.whl
	cd build/fresh && bin/python -m pip check && bin/almoner --version
	cd build/fresh && bin/almoner epsilon --noise-multiplier 1.1 --sample-rate 0.01 --steps 1000 --json > epsilon.json
	cd build/fresh && bin/almoner train --help > help.txt && ! bin/almoner demo 2> missing.txt && grep -q "pip install" missing.txt

# known weaknesses of the libraries, in the versions of .venv (asks the package index)
audit: $(READY)
	$(PYTHON) -m venv build/audit
	build/audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit
	$(BIN)/python -m pip freeze --exclude-editable > build/audit/requirements.txt
	build/audit/bin/pip-audit --requirement build/audit/requirements.txt --no-deps --disable-pip

# the oldest and the newest versions that the extras allow, each in an environment of its own
oldest newest: $(READY)
	$(BIN)/python tools/versions.py $@

$(READY): pyproject.toml constraints.txt
	$(NEW_ENOUGH)
	$(PYTHON) -m venv $(VENV)
	$(PIP) torch
	$(PIP) --editable '.[dev]'
	touch $(READY)

$(DEMO)/ready: pyproject.toml constraints.txt
	$(NEW_ENOUGH)
	$(PYTHON) -m venv $(DEMO)
	$(DEMO)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[demo]'
	touch $@

clean:
	rm -rf $(VENV) $(DEMO) .mypy_cache .pytest_cache .ruff_cache .hypothesis build demo dist
