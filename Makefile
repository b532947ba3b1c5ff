# Every command needs nothing but Python, make and a package index: it makes the environment itself.
PYTHON ?= python3
VENV ?= .venv
OLDEST ?= .venv-oldest
NEWEST ?= .venv-newest
BIN := $(VENV)/bin
# Two workers, no threads beside them; what is compiled is kept for the processes that tests start.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

.PHONY: help demo check test docs links lint types quick tests oldest newest format clean

help:
	@echo "make demo   set up an environment and run jointleaf, from Python and from the shell"
	@echo "make check  set up an environment and run lint, types and the quick tests: two minutes"
	@echo "make test   set up an environment and run lint, types and all tests: about six minutes"
	@echo "make oldest run the quick tests with the oldest versions that are declared, in .venv-oldest"
	@echo "make newest run the quick tests with the newest versions, in .venv-newest"
	@echo "make docs   set up an environment and build the documentation into site/"
	@echo "make links  check all links of the documentation; those to other sites only with a network"
	@echo "make format format the source, and fix what can be fixed"
	@echo "make clean  remove the environments and the built documentation"

# Each environment is made once and again when the dependencies change. What is imported is compiled
# then: it is a quarter of what is installed.
$(VENV)/demo.done: pyproject.toml
	@echo "Installing jointleaf and what it needs into $(VENV): about a minute."
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -e ".[plot,cli]"
	touch $@

$(VENV)/dev.done: pyproject.toml
	@echo "Installing jointleaf with all that its tests need into $(VENV): some minutes."
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -e ".[dev,plot]"
	touch $@

$(VENV)/docs.done: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[docs]"
	touch $@

demo: $(VENV)/demo.done
	@echo "Comparing with peers on four data sets, then a CSV file from the shell: less than a minute."
	$(BIN)/python examples/demo.py --splits 3
	$(BIN)/jointleaf fit examples/flats.csv --target price -o output/flats.jleaf
	$(BIN)/jointleaf predict output/flats.jleaf examples/flats_new.csv --id flat -o output/prices.csv
	$(BIN)/jointleaf explain output/flats.jleaf examples/flats_new.csv --row 12

check: lint types quick

# In a fresh clone types take one core some twenty seconds: they are checked beside the tests.
test: lint
	@$(MAKE) --no-print-directory -j 2 types tests

lint: $(VENV)/dev.done
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/dev.done
	$(BIN)/mypy

quick: $(VENV)/dev.done
	@echo "Quick tests, on two cores: about a minute."
	$(PYTEST) -m "not slow"

tests: $(VENV)/dev.done
	@echo "All tests, on two cores: about five minutes."
	$(PYTEST)

# The versions that pyproject.toml declares: the lower bound of each, and the newest there are.
# Another Python: make oldest PYTHON=python3.10 OLDEST=.venv-oldest-3.10
oldest:
	test -x $(OLDEST)/bin/python || $(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python tests/oldest_versions.py > $(OLDEST)/constraints.txt
	$(OLDEST)/bin/python -m pip install --quiet --disable-pip-version-check -c $(OLDEST)/constraints.txt -e ".[dev,plot]"
	OMP_NUM_THREADS=1 $(OLDEST)/bin/python -m pytest -n 2 -m "not slow"

newest:
	test -x $(NEWEST)/bin/python || $(PYTHON) -m venv $(NEWEST)
	$(NEWEST)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade -e ".[dev,plot]"
	OMP_NUM_THREADS=1 $(NEWEST)/bin/python -m pytest -n 2 -m "not slow"

# Every warning is an error: a link or an anchor that leads nowhere, a docstring that is not understood.
docs: $(VENV)/docs.done
	$(BIN)/python -m sphinx --fail-on-warning --keep-going --fresh-env --quiet -b html -d site/.doctrees docs site
	@echo "site/index.html is the first page"

links: $(VENV)/dev.done
	JOINTLEAF_CHECK_LINKS=1 $(BIN)/python -m pytest -q -rs tests/project -k links

format: $(VENV)/dev.done
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) $(OLDEST) $(NEWEST) site
