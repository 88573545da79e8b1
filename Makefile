# The front door. `make help` lists what it does; the work is in tools/ and CMakePresets.json.

JOBS ?= $(shell nproc)
FUZZ_SECONDS ?= 60
FILTER ?= .
export JOBS
export NINJA_STATUS = [%f/%t %es]$() 

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test test-all wheel bench lint format fuzz-corpus clean

help:
	@echo 'make demo        install what is missing, build, train a digit classifier'
	@echo 'make test        release, asan+ubsan and tsan suites, and a minute of fuzzing'
	@echo 'make test-all    every suite under every preset and instruction set, lint of every file'
	@echo 'make wheel       build the Python package, with the libraries it needs, into dist/'
	@echo 'make bench       run the benchmarks (FILTER=regex); JSON goes to bench_results/'
	@echo 'make lint        format, layers, Python and clang-tidy checks'
	@echo 'make format      rewrite C++ and Python sources in the house format'
	@echo 'make fuzz-corpus keep what fuzzing found that is new in tests/fuzz_corpus/'
	@echo 'make clean       remove build/'
	@echo 'JOBS=n sets how many processes build and test (now $(JOBS)).'

demo:
	@tools/setup.sh build
	@tools/build.sh release python
	@.venv/bin/python examples/digits/digits.py

test:
	@tools/setup.sh build test
	@tools/build.sh release all tests examples benchmarks python
	@tools/run_tests.sh release
	@MILLRACE_ISA=baseline tools/run_tests.sh release -LE install
	@tools/python_tests.sh release
	@tools/build.sh asan tests fuzzers python
	@tools/run_tests.sh asan
	@tools/python_tests.sh asan
	@tools/fuzz.sh $(FUZZ_SECONDS)
	@tools/build.sh tsan tests_threads python
	@tools/run_tests.sh tsan -L threads
	@tools/python_tests.sh tsan

test-all:
	@tools/setup.sh build test lint
	@for preset in dev release asan tsan; do \
	  tools/build.sh $$preset all tests examples benchmarks && \
	  tools/run_tests.sh $$preset && \
	  MILLRACE_ISA=baseline tools/run_tests.sh $$preset -LE install || exit 1; \
	done
	@if command -v nvcc > /dev/null; then \
	  tools/build.sh cuda all tests && tools/run_tests.sh cuda; \
	else echo '== cuda: no CUDA toolkit here, left out'; fi
	@if command -v aarch64-linux-gnu-g++ > /dev/null && command -v qemu-aarch64 > /dev/null; then tools/arm64_tests.sh; \
	else echo '== arm64: no g++-aarch64-linux-gnu or qemu-user here, left out'; fi
	@tools/build.sh asan fuzzers
	@tools/fuzz.sh $(FUZZ_SECONDS)
	@tools/python_versions.sh
	@tools/lint.sh --all

wheel:
	@tools/setup.sh build
	@tools/wheel.sh

bench:
	@tools/setup.sh build bench
	@tools/build.sh release benchmarks python
	@tools/bench.sh '$(FILTER)'

lint:
	@tools/setup.sh build lint
	@tools/lint.sh

format:
	@tools/setup.sh lint
	@tools/format.sh

fuzz-corpus:
	@tools/setup.sh build test
	@tools/build.sh asan fuzzers
	@tools/fuzz.sh --merge

clean:
	rm -rf build
