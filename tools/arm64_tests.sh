#!/usr/bin/env bash
# arm64_tests.sh [ctest arguments]: compiles the library and its tests for 64-bit ARM, and runs in QEMU
# those of the tests that have to do with processors and do not take long there.
set -euo pipefail
cd "$(dirname "$0")/.."

tools/setup.sh arm64
tools/arm64_sysroot.sh

tests=(base tensor tensor_threads graph io kernel ops_math ops_linalg ops_nn ops_reduce ops_training ops_array)
tools/build.sh arm64 "${tests[@]/%/_test}" ops_test
tools/run_tests.sh arm64 -R "^($(IFS='|'; echo "${tests[*]}"))\$" "$@"
# Of ops_test, which tries every op, only what vectors compute.
GTEST_FILTER='Vector.*' tools/run_tests.sh arm64 -R '^ops$' "$@"
