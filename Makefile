# Everything a fresh machine needs is Python 3.11 or newer.  `make demo` runs the main job, `make test` the tests.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Stamps name what they were made from, so that a changed pyproject.toml installs anew.
STAMP := $(VENV)/.installed
DEV_STAMP := $(VENV)/.installed-dev
# Two workers unless told otherwise: tests that compile are bound by cores. Files go out in order: sorted by how many
# tests they have, the random programs, one long test each, would come last and alone.
WORKERS ?= 2

# A worker that dies in native code ends the run, which names the test: replaced, it would get the same test again.
SPREAD = $(BIN)/python -m pytest -n $(WORKERS) --max-worker-restart=0
PYTEST = $(SPREAD) --dist loadfile --no-loadscope-reorder

.PHONY: demo check test rest nightly durations lint types docs site bench clean

demo: $(STAMP)
	$(BIN)/python examples/01_gemm.py

# For daily work, in about a minute: of every function of tests what takes a tenth of a second.
check: lint
	$(PYTEST) --quick

# Types are checked beside the tests, on a core that waits for a last file.
test: lint
	@$(BIN)/pyright >$(VENV)/types.txt & types=$$!; $(PYTEST); tests=$$?; \
	wait $$types; wrong=$$?; cat $(VENV)/types.txt; exit $$((tests ? tests : wrong))

# What the last `make test` skipped, once the optional packages are there; products on tiles of AMX, which few machines
# have; 300 programs beside MLIR's own passes; and every fragment of the RFCs on every target.
rest: $(DEV_STAMP)
	$(PYTEST) --rest
	$(SPREAD) -p no:cacheprovider --emulate-amx --quick tests/acceptance tests/fuzz tests/ops tests/targets/cpu
	TILEWRIGHT_PEER_EXAMPLES=300 TILEWRIGHT_EVERY_CASE=1 $(SPREAD) -p no:cacheprovider \
		tests/peer/test_programs.py tests/examples/test_rfc_fragments.py

# Random programs by the thousand, not by the dozen, and every case of every test.
nightly: $(DEV_STAMP)
	TILEWRIGHT_LOWERING_EXAMPLES=1000 TILEWRIGHT_FUZZ_EXAMPLES=500 TILEWRIGHT_TEST_MUTATIONS=1000 \
	TILEWRIGHT_PEER_EXAMPLES=300 TILEWRIGHT_CHECK_EVERY=1 TILEWRIGHT_EVERY_CASE=1 $(PYTEST)

# What a case takes, by which `make test` and `make check` choose: after large changes of the tests.
durations: $(DEV_STAMP)
	$(PYTEST) --durations-table

lint: $(DEV_STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(DEV_STAMP)
	$(BIN)/pyright

docs: $(DEV_STAMP)
	for script in docs/make_*.py; do $(BIN)/python $$script || exit 1; done

# The documents as pages with a search, in site/; a link that leads nowhere is an error.
site: $(DEV_STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[site]'
	$(BIN)/python -m mkdocs build

bench: $(STAMP)
	$(BIN)/tilewright bench all

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Tilewright needs Python 3.11 or newer; $(PYTHON) is" `$(PYTHON) -V 2>&1`. \
		"Name another one: make PYTHON=python3.12 ..."; exit 3; }
	@echo "Making a virtual environment in $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)

$(STAMP): $(VENV)/bin/python pyproject.toml
	@echo "Installing Tilewright and its run-time dependencies (about a minute) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(DEV_STAMP): $(STAMP)
	@echo "Installing what the tests need ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) build site *.egg-info .pytest_cache .ruff_cache .hypothesis
