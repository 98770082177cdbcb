# Two commands for users: `make study` and `make test`. Both set up the environment first; the second time that costs
# seconds. PYTHON may name another Python 3.11.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STUDY ?= configs/small.yaml
CORES ?= $(shell nproc 2>/dev/null || sysctl -n hw.ncpu)

.PHONY: study test lint setup clean

study: setup
	$(BIN)/jagg study run $(STUDY) --cores $(CORES)

test: setup
	$(BIN)/python -m pytest tests

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/snakefmt --check Snakefile workflow
	$(BIN)/python -m snakemake --lint --config study=configs/small.yaml

setup: $(VENV)/.installed

# torch first and alone: its wheel decides what the others may install.
$(VENV)/.installed: envs/requirements.txt envs/hpsv2.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $$(grep -E '^torch' envs/requirements.txt)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r envs/requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -r envs/hpsv2.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	touch $@

clean:
	rm -rf $(VENV)
