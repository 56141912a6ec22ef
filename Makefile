# `make demo` and `make test` set up all they need; Python 3.11 or newer is enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo robot test bench lint docs install clean

demo: $(VENV)/installed
	$(BIN)/newfound demo

robot: $(VENV)/installed
	$(BIN)/python docs/robot.py

test: $(VENV)/developed
	$(BIN)/python -m pytest -n 2 --dist worksteal

bench: $(VENV)/developed
	$(BIN)/python -m benchmarks

lint: $(VENV)/developed
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(VENV)/documented
	PYTHONWARNINGS=ignore $(BIN)/jupytext --to notebook --set-kernel python3 --execute -o docs/notebook.ipynb docs/notebook.py
	$(BIN)/zensical build

install: $(VENV)/developed

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet --editable .
	touch $@

$(VENV)/developed: $(VENV)/installed
	$(BIN)/pip install --quiet --group dev
	touch $@

$(VENV)/documented: $(VENV)/installed
	$(BIN)/pip install --quiet --group docs
	touch $@

clean:
	rm -rf $(VENV) runs site dist
