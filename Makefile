# make demo: the main job on this machine.  make test: everything.  Both set up .venv/ themselves.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := 0.13.8
LOCK ?= locks/worker.txt

.PHONY: demo test test-unit test-long lint env lock clean

demo: $(VENV)/ready  ## nine cells of the embedded data set on this machine, then the tables
	$(BIN)/hpml-jobs grid=lab cluster=local device=cpu workload=digits probe_s=5
	$(BIN)/hpml-jobs collect digits-local

test: $(VENV)/ready lint  ## unit tests, then the journeys on a real SLURM
	./tests/install-slurm
	$(BIN)/python -m pytest -m "not long" -n 2 --dist loadfile --durations=40

test-unit: $(VENV)/ready lint
	$(BIN)/python -m pytest -m "not long and not journey"

test-long: $(VENV)/ready  ## what takes longer: both locks of torch, every fault (docs/reliability.md)
	./tests/install-slurm
	$(BIN)/python -m pytest -m "long or fault" --capture=no

lint: $(VENV)/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

env: $(VENV)/ready  ## only the environment

$(VENV)/ready: $(LOCK) locks/dev.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV)
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/uv pip install --quiet --compile-bytecode -r $(LOCK) -r locks/dev.txt
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/uv pip install --quiet --no-deps --editable .
	touch $@

lock:  ## exact versions again, from pyproject.toml (three files, see locks/README.md)
	$(BIN)/uv pip compile -q --no-header --no-annotate --extra worker pyproject.toml \
	  -c locks/pair.txt -o locks/worker.txt
	$(BIN)/uv pip compile -q --no-header --no-annotate --extra worker pyproject.toml \
	  -c locks/pair-cuda12.txt -o locks/worker-cuda12.txt
	$(BIN)/uv pip compile -q --no-header --no-annotate pyproject.toml \
	  -c locks/worker.txt -o locks/login.txt
	$(BIN)/uv pip compile -q --no-header --no-annotate --extra dev pyproject.toml \
	  -c locks/worker.txt -o locks/dev.txt

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache
