# Two commands for users: `make study` and `make test`. Both set up the environment first; the second time that costs
# seconds. PYTHON may name another Python 3.11.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
STUDY ?= configs/small.yaml
CORES ?= $(shell nproc 2>/dev/null || sysctl -n hw.ncpu)

.PHONY: study test lint coverage setup clean

study: setup
	$(BIN)/jagg study run $(STUDY) --cores $(CORES)

test: setup
	$(BIN)/python -m pytest tests -n 2 --dist loadfile

# How often intervals hold the truth in simulations, as a table; minutes on one core.
coverage: setup
	$(BIN)/python -m tests.stats.simulate_coverage

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/snakefmt --check Snakefile workflow
	$(BIN)/python -m snakemake --lint --config study=configs/small.yaml

setup: $(VENV)/.installed

# torch first and alone: its wheel decides what the others may install.
$(VENV)/.installed: envs/requirements.txt envs/constraints.txt envs/hpsv2.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) -c envs/constraints.txt $$(grep -E '^torch' envs/requirements.txt)
	$(PIP) -c envs/constraints.txt -r envs/requirements.txt
	$(PIP) --no-deps -r envs/hpsv2.txt
	$(PIP) --no-deps -e .
	touch $@

clean:
	rm -rf $(VENV)
