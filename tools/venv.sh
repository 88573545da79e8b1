#!/usr/bin/env bash
# venv.sh: makes .venv hold the formatters of tools/requirements.txt, pinned because another version
# would format the same file differently. Does nothing when it already does.
set -euo pipefail
cd "$(dirname "$0")/.."
if cmp -s tools/requirements.txt .venv/requirements.txt; then
  exit 0
fi
echo "== installing $(tr '\n' ' ' < tools/requirements.txt)into .venv"
python3 -m venv .venv
if ! .venv/bin/pip install --quiet --disable-pip-version-check -r tools/requirements.txt; then
  echo "Please run: .venv/bin/pip install -r tools/requirements.txt" >&2
  exit 1
fi
cp tools/requirements.txt .venv/requirements.txt
