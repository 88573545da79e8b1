#!/usr/bin/env bash
# format.sh: rewrites the C++ and Python sources in the house format.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/common.sh
tools/venv.sh
cxx_sources | xargs -r .venv/bin/clang-format -i
.venv/bin/ruff format --quiet
.venv/bin/ruff check --quiet --fix
