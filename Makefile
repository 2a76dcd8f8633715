# Two commands set everything up: `make demo` and `make test`. See README.md.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
USE := $(VENV)/.installed
WORK := $(VENV)/.installed-dev

.PHONY: demo test test-slow lint format bench results docs clean

# what using it takes, so that the demo is there soon, and what working on it takes
$(USE): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=24"
	$(BIN)/python -m pip install --quiet -c constraints.txt torch==2.13.0
	$(BIN)/python -m pip install --quiet -c constraints.txt -e .
	@touch $(USE)

$(WORK): $(USE)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[dev]"
	@touch $(WORK)

demo: $(USE)
	$(BIN)/itemfold demo

test: $(WORK)
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "not slow"

test-slow: $(WORK)
	$(BIN)/python -m pytest -m slow --timeout 7200

lint: $(WORK)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(WORK)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(WORK)
	$(BIN)/python benchmarks/run_all.py

results: $(USE)
	$(BIN)/python tools/make_results.py

# pages under docs/, built into site/; a warning, such as a dead link, is an error
docs: $(WORK)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[docs]"
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

clean:
	rm -rf $(VENV) build dist site *.egg-info
