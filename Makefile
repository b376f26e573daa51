# make demo: a small study on this machine.  make test: all tests.  Both create .venv/ if needed.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := 0.13.8
LOCK ?= locks/worker.txt
FOLDER ?= wheelhouse
# As many processes as there are CPUs at most.
DEMO_SIZES = $(shell test $$(nproc) -ge 4 && echo 1,2,4 || echo 1,2)
# On a GPU machine without internet there may be no .venv/: then the Python that has torch.
TEST_PYTHON = $(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON))
# In the order of tests/conftest.py: quick tests first, a worker for each CPU. Those on SLURM wait
# more than they compute.
ALL_TESTS = -m "not long and not gpu" -n 4 --dist loadfile --no-loadscope-reorder
QUICK_TESTS = $(ALL_TESTS) -n logical --maxprocesses 4 --durations=5 --only quick hpml_jobs tests --ignore=hpml_jobs/worker
SLOW_TESTS = $(ALL_TESTS) --durations=5 --only slow tests hpml_jobs/worker

.PHONY: demo test test-quick coverage test-unit test-long test-gpu lint docs gallery golden env lock wheelhouse clean

demo: $(VENV)/ready  ## Run a small study on this machine's CPU, print the tables, write a page.
	$(BIN)/hpml-jobs -m gpus=$(DEMO_SIZES) batch=64 repeats=4 cluster=local device=cpu \
	  workload=digits data.limit=2560 probe_s=0.5 loader=device study=demo
	$(BIN)/hpml-jobs collect demo
	@echo "commands of hpml-jobs need its environment in your shell: source $(BIN)/activate"

test: $(VENV)/ready lint  ## Run all checks and tests; SLURM's packages are installed meanwhile.
	{ ./tests/install-slurm && ./tests/install-browser && ./tests/install-compiler; } & \
	$(BIN)/python -m pytest $(QUICK_TESTS); code=$$?; \
	wait $$! && exit $$code
	$(BIN)/python -m pytest $(SLOW_TESTS)

test-quick: $(VENV)/ready  ## Run the tests that neither train nor need SLURM, a browser or a compiler.
	$(BIN)/python -m pytest $(QUICK_TESTS)

coverage: $(VENV)/ready  ## Run all tests under branch coverage, and fail below the limit in pyproject.toml.
	./tests/install-slurm
	./tests/install-browser
	./tests/install-compiler
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest $(ALL_TESTS)
	$(BIN)/coverage combine -q
	$(BIN)/coverage report

test-unit: $(VENV)/ready lint  ## Run the checks and the tests that need no SLURM.
	$(BIN)/python -m pytest -m "not long and not gpu and not journey"

test-long: $(VENV)/ready  ## Run the long tests: both locks, every fault, repeated injections.
	./tests/install-slurm
	$(BIN)/python -m pytest -m "long or fault" --capture=no

test-gpu:  ## Measure on this machine's GPU by value, and write docs/measured.md. PARTS="events": some parts.
	$(TEST_PYTHON) -m tests.gpu $(PARTS)

lint: $(VENV)/ready  ## Run ruff, mypy, the import contracts and the check of dense functions.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m tests.benchmarks.house

docs: $(VENV)/ready  ## Write the pages of docs/ that are generated from the code.
	$(BIN)/python docs/generate

gallery: $(VENV)/ready  ## Write the report of the study in docs/gallery/cifar10.tar.gz.
	$(BIN)/python docs/gallery/make.py

env: $(VENV)/ready  ## Create the environment .venv/ only.

$(VENV)/ready: $(LOCK) locks/dev.txt pyproject.toml
	@echo "creating $(VENV)/ (half a minute or more)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -qq --disable-pip-version-check uv==$(UV)
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/uv pip install --quiet --compile-bytecode -r $(LOCK) -r locks/dev.txt
	VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/uv pip install --quiet --no-deps --editable .
	$(BIN)/python -m compileall -q -j 0 hpml_jobs
	touch $@

golden: $(VENV)/ready  ## Write tests/data/golden anew: read the difference before you commit it.
	GOLDEN=write $(BIN)/python -m pytest -q tests/unit/golden

lock:  ## Write the lock files from pyproject.toml (see locks/README.md).
	$(BIN)/uv pip compile -q --no-header --no-annotate --extra worker pyproject.toml \
	  -c locks/pair.txt -o locks/worker.txt
	$(BIN)/uv pip compile -q --no-header --no-annotate --extra worker pyproject.toml \
	  -c locks/pair-cuda12.txt -o locks/worker-cuda12.txt
	$(BIN)/uv pip compile -q --no-header --no-annotate pyproject.toml \
	  -c locks/worker.txt -o locks/login.txt
	$(BIN)/uv pip compile -q --no-header --no-annotate --extra dev pyproject.toml \
	  -c locks/worker.txt -o locks/dev.txt

wheelhouse:  ## Download wheels for machines without internet: [PYTHON=3.12] [FOLDER=wheelhouse] [OWN_TORCH=1].
	$(or $(wildcard $(BIN)/python),python3) locks/wheelhouse.py --folder $(FOLDER) --lock $(LOCK) \
	  $(if $(filter 3.%,$(PYTHON)),--python $(PYTHON)) $(if $(OWN_TORCH),--own-torch)

clean:  ## Remove the environment and all caches.
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache
