# Each target sets up what it needs: .venv is made once, and again when the dependencies change.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
BENCH_READY := $(VENV)/.ready-bench
JOBS ?= 2
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help demo test lint schema bench-overhead bench-clean bench-faults bench-locate bench-quantize clean

help:  ## this text
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[torch,transformers,test]'
	touch $@

$(BENCH_READY): $(READY)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[bench]'
	touch $@

demo: $(READY)  ## train, export, verify, and catch a fault that allclose lets through
	$(BIN)/onnxproof demo --output demo

test: lint  ## ruff, mypy --strict, all tests; the built wheel is installed and tested, also where there is no torch
	$(BIN)/python -m pytest -n $(JOBS) --dist loadgroup

lint: $(READY)  ## ruff and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/mypy

schema: $(READY)  ## write docs/proof.schema.json anew from the dataclasses
	$(BIN)/python -m onnxproof.report.schema > docs/proof.schema.json

bench-overhead: $(READY)  ## what a verification costs beyond the forward passes that it runs
	$(BIN)/python -m bench.overhead

bench-clean: $(READY)  ## every healthy model: the margin to the thresholds
	$(BIN)/python -m bench.runner clean --jobs $(JOBS) --markdown docs/clean.md

bench-faults: $(BENCH_READY)  ## the scoreboard: faults caught and false alarms, beside the alternatives
	$(BIN)/python -m bench.scoreboard --jobs $(JOBS) --readme

bench-locate: $(BENCH_READY)  ## the price of naming the node, beside torch.onnx's verification and Polygraphy
	$(BIN)/python -m bench.locate

bench-quantize: $(BENCH_READY)  ## int8 models beside those of ONNX Runtime and NNCF, on networks trained on real data
	$(BIN)/python -m bench.quantize --markdown docs/quantize-bench.md

clean:  ## remove what the targets made
	rm -rf $(VENV) build dist demo .mypy_cache .ruff_cache .pytest_cache .hypothesis
