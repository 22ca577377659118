# `make demo` answers a question with a real model; `make test` runs everything that checks this repository.
# Needed: Python 3.11 or newer and a package index that pip knows. Everything else goes into .venv and build.

PYTHON ?= $(shell for p in python3 python3.12 python3.11 python; do \
  $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
MODEL := smollm2-135m-instruct
QUESTION := Explain in one sentence what a compiler does.
# A GPU is used where there is one: its driver brings nvidia-smi.
EXTRA := $(if $(shell command -v nvidia-smi 2>/dev/null),cuda,cpu)

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help demo test lint lit pytest clean
.DELETE_ON_ERROR:

help:
	@echo "make demo    answer a question with a real model"
	@echo "make test    run all checks: style, types, lit and pytest"
	@echo "make lint    run the checks of style and types alone"
	@echo "make clean   remove .venv, build and caches in this folder"

demo: $(STAMP)-$(EXTRA)
	@$(BIN)/tilec pull $(MODEL) >/dev/null
	@echo "> $(QUESTION)"
	@$(BIN)/tilec generate $(MODEL) "$(QUESTION)"

test: lint lit pytest

lint: $(STAMP)-test build/types/tilec
	@echo "== ruff"
	@$(BIN)/ruff check --quiet . && echo "no complaints"
	@echo "== mypy"
	@$(BIN)/mypy

lit: $(STAMP)-test
	@echo "== lit"
	@$(BIN)/lit -sv test/lit

# Tests of the real model are skipped, with the reason, where it cannot be had. ptxas is found on the path.
pytest: $(STAMP)-test
	@echo "== pytest"
	@$(BIN)/tilec pull $(MODEL) >/dev/null || echo "the tests of the real model are skipped"
	@PATH="$$(echo $(CURDIR)/$(VENV)/lib/python*/site-packages/nvidia/*/bin):$$PATH" $(BIN)/pytest -q -rs -n auto --maxprocesses 8 --dist worksteal

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "need Python 3.11 or newer; name one: make PYTHON=/path/to/python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)

# The installation follows the source (-e), so only other dependencies make it old.
$(STAMP)-cpu: pyproject.toml | $(BIN)/python
	@echo "installing tilec into $(VENV) (fetches some 170 MB the first time)"
	@$(BIN)/pip install -qq -e . && touch $@

$(STAMP)-cuda: pyproject.toml | $(BIN)/python
	@echo "installing tilec into $(VENV), with what a GPU needs"
	@$(BIN)/pip install -qq -e '.[cuda]' && touch $@ $(STAMP)-cpu

$(STAMP)-test: pyproject.toml | $(BIN)/python $(if $(filter cuda,$(EXTRA)),$(STAMP)-cuda)
	@echo "installing tilec into $(VENV), with what its tests need"
	@$(BIN)/pip install -qq -e '.[test]' && touch $@ $(STAMP)-cpu

# mypy follows no package-dir, so it reads the installed layout through links (as `cmake -B build` makes them).
build/types/tilec: $(wildcard tilec/*.py) Makefile
	@rm -rf $@ && mkdir -p $@
	@for f in $(wildcard tilec/*.py) dialects frontend pipelines runtime tools; do \
	  ln -s $(CURDIR)/$$f $@/$${f#tilec/}; done

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
