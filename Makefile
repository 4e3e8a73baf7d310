# `make demo` and `make test` do all the set-up on a fresh machine; everything lives in .venv.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
TEST_STAMP := .venv/.installed-tests

.PHONY: demo test check soak sweep docs bench bench-big bench-tracing bench-replay bench-recording bench-bisect score clean

$(BIN)/python:
	$(PYTHON) -m venv .venv

$(STAMP): $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	touch $@

$(TEST_STAMP): $(STAMP)
	$(BIN)/python -c 'import torch' 2>/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

demo: $(STAMP)  ## install, analyze a bundled real failed run, print the verdict
	$(BIN)/rca analyze rca/bundles/disk_full_at_save/logs

test: $(TEST_STAMP)  ## everything: house rules, unit tests, real broken torchrun jobs
	$(BIN)/python -m ruff check .
	$(BIN)/python -m pytest

check: $(TEST_STAMP)  ## the quick part of `make test`
	$(BIN)/python -m ruff check .
	$(BIN)/python -m pytest -m 'not real'

soak: $(TEST_STAMP)  ## a thousand processes that record and are killed at random points; trainers that are killed and resumed
	RCA_TORTURE_KILLS=1000 $(BIN)/python -m pytest tests/trace_inject/test_torture.py -s
	RCA_TRAIN_KILLS=500 RCA_TRAIN_SOAK=30 $(BIN)/python -m pytest tests/replay_trainer/test_checkpoints.py tests/replay_trainer/test_system.py -k 'killed or soak' -s

sweep: $(TEST_STAMP)  ## break the reference trainer N times in each of its ways, and see whether it is found out
	rm -rf build/sweep
	$(BIN)/rca scenarios run all --variations $(N) -o build/sweep; code=$$?; $(BIN)/rca scenarios check all -o build/sweep && exit $$code

bench-replay: $(TEST_STAMP)  ## play all scenarios, replay their recordings, and 1,000 healthy requests: verdicts, bits, and what the analyzer makes of it
	rm -rf build/replay
	$(BIN)/rca scenarios run all -o build/replay
	$(BIN)/python bench/replay.py build/replay --healthy 100

docs: $(STAMP)  ## the generated pages
	$(BIN)/rca rules list --markdown > docs/rules.md

bench: $(TEST_STAMP)  ## speed and memory against ripgrep, with the bars
	$(BIN)/python bench/run.py

bench-big: $(TEST_STAMP)  ## 512 ranks, 2 GB, a million spans: time and memory
	$(BIN)/python bench/big.py --archive

bench-tracing: $(TEST_STAMP)  ## what a span costs, and what a kill leaves, beside OpenTelemetry's SDK
	$(BIN)/python bench/tracing.py

bench-recording: $(TEST_STAMP)  ## what recording its requests costs the reference trainer: a recorded and a plain one take turns
	$(BIN)/python bench/recording.py

bench-bisect: $(TEST_STAMP)  ## the search for bad machines against its bars
	$(BIN)/python bench/group_tests.py

N ?= 5
CASES ?= ../shared/cases/faultlab
score: $(STAMP)  ## accuracy on labelled cases: make score CASES=DIR
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python ../shared/score.py $(CASES) --misses

clean:
	rm -rf .venv build dist
