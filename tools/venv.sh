#!/usr/bin/env bash
# venv.sh: makes .venv hold what tools/requirements.txt names (formatters are pinned: another would format
# the same file differently), and see the Python package of the release build. Does nothing when it
# already does.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! cmp -s tools/requirements.txt .venv/requirements.txt; then
  echo "== installing $(tr '\n' ' ' < tools/requirements.txt)into .venv"
  python3 -m venv .venv
  if ! .venv/bin/pip install --quiet --disable-pip-version-check -r tools/requirements.txt; then
    echo "Please run: .venv/bin/pip install -r tools/requirements.txt" >&2
    exit 1
  fi
  cp tools/requirements.txt .venv/requirements.txt
fi
site=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
echo "$PWD/build/release/python" > "$site/millrace.pth"
cat > .venv/bin/millrace << END
#!/bin/sh
exec "$PWD/.venv/bin/python" -m millrace "\$@"
END
chmod +x .venv/bin/millrace
