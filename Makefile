# `make` lists the targets. Works with plain Python; uses uv when it is installed.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
# What is tested, with hashes (scripts/lock writes it). `make install LOCK=` takes the newest that pyproject.toml allows.
LOCK ?= requirements/tested.txt

# Quick folders first; whole stories, killed processes and pages last, when the rest is known to be good.
# Elsewhere the marker `slow` says what starts processes; tests/support/quick.py holds the others to starting none.
SLOW := $(wildcard tests/crash tests/journeys tests/docs tests/test_readme.py)
QUICK := $(filter-out $(SLOW) %/__pycache__ %/__init__.py %/conftest.py %/recordings,$(wildcard tests/*))
TESTS ?= $(QUICK) $(SLOW)
PYTEST = $(BIN)/python -m pytest -n $(or $(JOBS),$(WORKERS)) --maxprocesses 4 --dist loadfile --no-loadscope-reorder
TYPES = $(BIN)/pyright --pythonpath $(BIN)/python
ARGS ?=
JOBS ?=
POINTS ?= all
SEED ?= 1
RACES ?= 1000
CRASHED := everthink.testing.crashtest.sample
# Each sample agent with its conversation, in src/everthink/testing/crashtest.
SAMPLES := Traveller:sample AskedTraveller:sample Agency:sample_family AskedAgency:sample_family

.DEFAULT_GOAL := help
.PHONY: help install run check test crashtest soak fuzz races walks churn sandbox machines files code extensions messengers lint types format bench clean

help: ## List what you can do
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(INSTALLED) ## Create .venv with everything in it (PYTHON=python3.12 chooses the Python)

run: $(INSTALLED) ## Start the demo agent and its page (no key needed)
	@$(BIN)/everthink dev

# Thousands of databases are made, and each waits for the disk; memory makes nobody wait, where there is enough of it.
check test: export TMPDIR ?= $(shell df -Pk /dev/shm /tmp 2>/dev/null | awk '$$6 == "/dev/shm" && $$4 > 4000000 {print $$6; found = 1} END {if (!found) print "/tmp"}')
# What was compiled is kept, and not in the tree: every process that a test starts would compile everything again.
check test: export PYTHONPYCACHEPREFIX ?= $(abspath $(VENV))/bytecode
check test: export PYTHONDONTWRITEBYTECODE :=

# Quick tests wait for sockets and threads half of their time: twice as many processes as a small machine has cores.
check: WORKERS := 4
check: lint ## Check style, types and all that is quick: no processes, no browsers, no pages
	@scripts/ensure-postgres
	@$(call timed,$(call with_types,$(PYTEST) -m "not slow" --hypothesis-profile quick $(QUICK) $(ARGS)))

test: WORKERS := auto

test: lint types ## Check style and types, then run every test (ARGS="-k name", TESTS=tests/turn, JOBS=0)
	@scripts/ensure-postgres
	@scripts/ensure-browser
	@scripts/ensure-bubblewrap
	@$(call timed,$(PYTEST) $(TESTS) $(ARGS))

crashtest: $(INSTALLED) ## Kill the sample agents at every commit, on SQLite and PostgreSQL (POINTS=sample:40 for a part)
	@scripts/ensure-postgres
	@for sample in $(SAMPLES); do \
		agent=$${sample%%:*} script=src/everthink/testing/crashtest/$${sample##*:}.yaml && \
		echo "$$agent on SQLite" && \
		$(BIN)/everthink crashtest $(CRASHED):$$agent $$script --points $(POINTS) $(ARGS) && \
		echo "$$agent on PostgreSQL" && $(BIN)/python scripts/with-postgres \
		$(BIN)/everthink crashtest $(CRASHED):$$agent $$script --points $(POINTS) $(ARGS) --store @postgres || exit; \
	done

soak: $(INSTALLED) ## Kill a server with 200 agents every 20 seconds for 10 minutes (ARGS="--minutes 1")
	@$(BIN)/python -m everthink.testing.crashtest.soak $(ARGS)

fuzz: $(INSTALLED) ## Send 20,000 random frames, 12,000 random requests and 4,000 calls of a model (SEED=7)
	@EVERTHINK_THOROUGH=1 FUZZ_FRAMES=20000 FUZZ_REQUESTS=4000 FUZZ_SEED=$(SEED) $(BIN)/python -m pytest tests/security/test_fuzz.py \
		tests/security/test_fuzz_doors.py tests/security/test_fuzz_models.py tests/server/test_fuzz.py $(ARGS)

races: $(INSTALLED) ## Take agents over under fire a thousand times, on PostgreSQL (RACES=5000)
	@scripts/ensure-postgres
	@EVERTHINK_RACES=$(RACES) $(BIN)/python -m pytest tests/cluster/test_races.py -s $(ARGS)

walks: $(INSTALLED) ## Let windows, deaths and long conversations go a thousand random ways and look whether anything was lost (WALKS=5000)
	@WALKS=$(or $(WALKS),1000) EVERTHINK_THOROUGH=1 $(BIN)/python -m pytest tests/server/test_walks.py \
		tests/recovery/test_histories.py tests/session/test_long_conversation.py $(ARGS)

churn: $(INSTALLED) ## Watch memory while a thousand people come and go for 10 minutes (ARGS="--minutes 3")
	@$(BIN)/python -m bench.churn $(ARGS)

sandbox: $(INSTALLED) ## Run 1,500 scripts in a child of every engine and look whether memory and descriptors stay flat
	@EVERTHINK_THOROUGH=1 $(BIN)/python -m pytest tests/sandbox -k many_scripts $(ARGS)

files: $(INSTALLED) ## Kill a process at every commit while it works in files, takes a turn back and brings it back, on both databases
	@scripts/ensure-postgres
	@EVERTHINK_THOROUGH=1 $(BIN)/python -m pytest tests/crash/test_files_killed.py tests/crash/test_workspace_killed.py $(ARGS)

code: $(INSTALLED) ## Kill a process at every commit while code of a model calls tools, on both databases
	@scripts/ensure-postgres
	@EVERTHINK_THOROUGH=1 $(BIN)/python -m pytest tests/crash/test_code_killed.py --timeout 3600 $(ARGS)

extensions: $(INSTALLED) ## Kill a process at every commit while an agent learns: skills, scripts, extensions, on both databases
	@scripts/ensure-postgres
	@EVERTHINK_THOROUGH=1 $(BIN)/python -m pytest tests/crash/test_extensions_killed.py --timeout 3600 $(ARGS)

messengers: $(INSTALLED) ## Kill a bot at every commit of a conversation, and at random in 200 answers, on every platform and both databases
	@scripts/ensure-postgres
	@EVERTHINK_THOROUGH=1 $(BIN)/python -m pytest tests/crash/test_messengers_killed.py tests/crash/test_messengers_random.py \
		--timeout 3600 $(ARGS)

machines: $(INSTALLED) ## Run 1,500 jobs in machines of every kind there is here and look whether memory, descriptors and processes stay flat
	@scripts/ensure-bubblewrap
	@EVERTHINK_THOROUGH=1 $(BIN)/python -m pytest tests/machines -k many_jobs --timeout 3600 $(ARGS)

lint: $(INSTALLED) ## Check style and formatting
	@$(BIN)/ruff check . scripts/cases scripts/llms scripts/reference scripts/with-postgres
	@$(BIN)/ruff format --check . scripts/cases scripts/llms scripts/reference scripts/with-postgres

types: $(INSTALLED) ## Check types
	@$(TYPES)

format: $(INSTALLED) ## Rewrite the code in our format
	@$(BIN)/ruff check --fix . scripts/cases scripts/llms scripts/reference scripts/with-postgres
	@$(BIN)/ruff format . scripts/cases scripts/llms scripts/reference scripts/with-postgres

bench: $(INSTALLED) ## Measure, and compare with the floor and with peers
	@$(BIN)/python -m bench

clean: ## Remove the virtual environment and caches
	rm -rf $(VENV) .ruff_cache .pytest_cache .hypothesis

# Done again only when pyproject.toml or the lock changes.
$(INSTALLED): pyproject.toml $(LOCK)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo 'everthink needs Python 3.11 or newer: make PYTHON=python3.12 …'; exit 1; }
	@if command -v uv >/dev/null; then \
		uv venv --quiet --allow-existing --python $(PYTHON) $(VENV) && \
		$(call install_with,uv pip install --python $(BIN)/python); \
	else \
		$(create_venv) && \
		$(if $(LOCK),,$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1' &&) \
		$(call install_with,$(BIN)/python -m pip install); \
	fi
	@touch $@

# Locked: only files whose hashes are known, none of which runs code to be installed, and then ourselves with the
# hatchling that came with them.
define install_with
$(if $(LOCK),$(1) --quiet --require-hashes --only-binary :all: -r $(LOCK) && \
		$(1) --quiet --no-deps --no-build-isolation -e ., \
		$(1) --quiet -e '.[all]' --group dev)
endef

# Runs a command and says how long it took since make began, however it ended.
START := $(shell date +%s)
define timed
$(1); status=$$?; echo "make $@ took $$(($$(date +%s) - $(START))) seconds"; exit $$status
endef

# Runs tests while the types are checked, and shows what came of those below the tests.
define with_types
{ said=$$(mktemp); $(TYPES) >$$said 2>&1 & types=$$!; \
	$(1); tests=$$?; wait $$types; types=$$?; cat $$said; rm -f $$said; test $$tests = 0 && test $$types = 0; }
endef

# Debian ships venv apart from Python. As root (a container, a build machine) we may fetch it.
define create_venv
{ $(PYTHON) -m venv $(VENV) || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && \
	apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3-venv >/dev/null && \
	$(PYTHON) -m venv --clear $(VENV); } || { echo 'Install venv first: apt-get install python3-venv'; exit 1; }; }
endef
