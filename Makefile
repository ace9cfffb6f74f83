# `make` or `make help` lists the targets. Variables:
#   PYTHON=        interpreter that already has torch 2.11-2.15, used instead of .venv
#   TORCH=         torch requirement for .venv, e.g. TORCH=torch==2.12.1
#   TORCH_INDEX=   package index for that torch, e.g. the one with CPU builds
#   JOBS=          number of parallel compile jobs and C++ test programs
#   CI=true        treat warnings as errors
#   SINCE=         commit: `make lint` runs clang-tidy only on what changed since then
#   UNITY=OFF      compile each source alone: slower from scratch, faster after a small edit
#   MINUTES=       duration of `make endure` (60)
#   DEVICE=        device of `make endure`: cpu or cuda

PRESET := $(if $(filter true 1,$(CI)),ci,release)
PY := $(if $(PYTHON),$(PYTHON),.venv/bin/python)
export PYTHON TORCH TORCH_INDEX JOBS SINCE

CONFIGURE = cmake -DPRISM_PYTHON="$(PYTHON)" $(if $(UNITY),-DCMAKE_UNITY_BUILD=$(UNITY)) --log-level=WARNING --preset
BUILD = cmake --build --parallel $(or $(JOBS),$(shell nproc)) --preset

# Some virtual machines announce AMX but trap when oneDNN uses it for bfloat16, so the tests do without.
test test-clients test-sanitize test-thread endure: export ONEDNN_MAX_CPU_ISA = AVX512_CORE_BF16

# The targets share build folders. Ninja keeps all cores busy on its own.
.NOTPARALLEL:
.DEFAULT_GOAL := help
.PHONY: help setup build test test-clients test-sanitize test-thread test-gpu test-wheel wheel fuzz endure demo bench format lint clean

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(firstword $(MAKEFILE_LIST)) | expand -t 16

setup:  ## install missing packages and create .venv
	@tools/setup.sh test

build:  ## compile the library, the program and the Python package into build/release
	@tools/setup.sh build
	@$(CONFIGURE) $(PRESET)
	@$(BUILD) $(PRESET)

test: setup  ## run the C++ tests, then the Python tests
	@$(CONFIGURE) $(PRESET)
	@$(BUILD) $(PRESET)-tests
	@status=0; ctest --preset $(PRESET) --parallel $(or $(JOBS),$(shell nproc)) || status=1; \
	PYTHONPATH="$(CURDIR)/build/release/python" "$(PY)" -m pytest --ctest-log=build/release/Testing/Temporary/LastTest.log || status=1; \
	exit $$status

test-clients:  ## train tiny models in nanoGPT's loop, Trainer, accelerate, Lightning, timm, DDP and others
	@tools/setup.sh clients
	@$(CONFIGURE) $(PRESET)
	@$(BUILD) $(PRESET) --target prism_python
	@PYTHONPATH="$(CURDIR)/build/release/python:$(CURDIR)/build/clients" "$(PY)" -m pytest tests/python/clients

test-gpu:  ## run the tests that need a GPU, then the kernel tests under compute-sanitizer
	@tools/setup.sh build
	@$(CONFIGURE) release -DPRISM_CUDA=ON
	@$(BUILD) release-gpu
	@PYTHON="$(PY)" tools/test_gpu.sh

test-sanitize:  ## run the C++ tests under the address and undefined-behavior sanitizers
	@tools/setup.sh build
	@$(CONFIGURE) sanitize
	@$(BUILD) sanitize
	@ctest --preset sanitize

test-thread:  ## run the C++ tests of data and training under the thread sanitizer
	@tools/setup.sh build
	@$(CONFIGURE) thread
	@$(BUILD) thread
	@ctest --preset thread

endure:  ## kill, starve and damage training runs for MINUTES= (60) minutes; DEVICE=cuda trains on a GPU
	@tools/setup.sh build
	@$(CONFIGURE) $(PRESET)
	@$(BUILD) $(PRESET)-endure
	@"$(PY)" tests/endure/run.py --minutes $(or $(MINUTES),60) --device $(or $(DEVICE),cpu)

wheel:  ## build the wheel of prism_optim for the torch of .venv into dist
	@tools/setup.sh build
	@PYTHON="$(PY)" tools/make_wheel.sh

test-wheel:  ## build the wheel, install it into a new environment and run the Python examples there
	@tools/setup.sh test
	@PYTHON="$(PY)" tools/test_wheel.sh

fuzz:  ## fuzz each file reader for a minute under the sanitizers
	@tools/setup.sh build
	@tools/setup.sh fuzz
	@tests/fuzz/run.sh

demo:  ## compare AdamW, Muon and PRISM on a small language model; writes runs/demo/report.html
	@tools/setup.sh build
	@$(CONFIGURE) $(PRESET)
	@$(BUILD) $(PRESET) --target prism_program
	@build/release/prism compare --config configs/demo.toml --out runs/demo

bench: build  ## time optimizer steps and training steps of Prism and of torch
	@PYTHON="$(PY)" bench/run.sh

format:  ## format all C++ and JavaScript sources with clang-format
	@tools/setup.sh lint
	@tools/lint.sh format

lint:  ## check format, clang-tidy's warnings and the types of the Python code
	@tools/setup.sh build
	@tools/setup.sh lint
	@$(CONFIGURE) lint
	@PYTHON="$(PY)" tools/lint.sh check

clean:  ## remove the build folder; keep .venv
	@rm -rf build
