# Two commands matter: `make demo` and `make test`. Each sets up what it needs in .venv and says what it does.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
TINY := pretrained=tiny-digits,head_set=tiny-digits/dg-ref-qsp,controls=20
RUNS := reports/runs/$(shell date +%Y-%m-%d-%H%M%S)
# the embedded model is so small that a second thread costs more than it gives, above all on a busy machine
ONE := OMP_NUM_THREADS=1

.PHONY: demo test lint types unit exact bench hub train help clean

help:
	@echo "make demo   install into .venv and run the main job on the embedded model (about 5 minutes after installing)"
	@echo "make test   install with the test extras, then lint, types and tests"
	@echo "make exact  the full product of exactness cases (long)"
	@echo "make bench  benchmarks: ratios measured side by side, written to reports/benchmarks/"
	@echo "make hub    the first rows of every real data set (needs the network)"
	@echo "make train  train the embedded model again, three seeds"

.venv/bin/python:
	@echo "== creating .venv with $(PYTHON)"
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "Python 3.11 or newer is needed"'
	$(PYTHON) -m venv .venv

.venv/installed: setup.cfg pyproject.toml | .venv/bin/python
	@echo "== installing harness-heads (torch and friends: several GB on a first run)"
	$(PIP) install --quiet --editable .
	@touch $@

.venv/installed-test: setup.cfg pyproject.toml | .venv/bin/python
	@echo "== installing harness-heads with the test extras (torch and friends: several GB on a first run)"
	$(PIP) install --quiet --editable '.[test]'
	@touch $@ .venv/installed

demo: .venv/installed
	@echo "== necessity: the shipped head set and 20 random sets, cut off from the image"
	$(ONE) $(BIN)/lmms_eval --model masked_qwen3vl --model_args $(TINY) --tasks ncs_digits --output_path $(RUNS)-ncs_digits
	@echo "== steerability: the same sets, steered onto a cell"
	$(ONE) $(BIN)/lmms_eval --model steered_qwen3vl --model_args $(TINY) --tasks cers_digits --output_path $(RUNS)-cers_digits
	@echo "== one protocol report over both"
	$(BIN)/harness-heads report $(RUNS)-ncs_digits $(RUNS)-cers_digits -o $(RUNS)-report

test: .venv/installed-test lint types unit

lint: .venv/installed-test
	@echo "== lint"
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: .venv/installed-test
	@echo "== types"
	$(BIN)/mypy

unit: .venv/installed-test
	@echo "== tests"
	$(ONE) $(BIN)/python -m pytest -q

exact: .venv/installed-test
	$(ONE) $(BIN)/python -m pytest -q -m exact

hub: .venv/installed-test
	$(BIN)/python -m pytest -q -m hub

bench: .venv/installed-test
	@for file in tests/benchmarks/*.py; do echo "== $$file"; OMP_NUM_THREADS=1 $(BIN)/python $$file || exit 1; done

train: .venv/installed-test
	@for seed in 1 2 3; do $(BIN)/python -m harness_heads.tiny.train --seed $$seed --out reports/runs/tiny-digits-seed$$seed || exit 1; done

clean:
	rm -rf .venv build dist *.egg-info
