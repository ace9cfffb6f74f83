#!/usr/bin/env bash
# Builds the wheel of prism_optim with the torch of .venv (or of PYTHON=), which is the torch it will run with, and prints its name.
# WHEEL_DIR=    where to put it (default dist)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly python="${PYTHON:-.venv/bin/python}" out="${WHEEL_DIR:-dist}"
"$python" -c 'import scikit_build_core' 2>/dev/null || "$python" -m pip --quiet install 'scikit-build-core>=0.10'
rm -f "$out"/prism_optim-*.whl
# Of pip's long report, the lines that Ninja counts, and every error.
"$python" -m pip --disable-pip-version-check wheel --verbose --no-build-isolation --no-deps --wheel-dir "$out" . 2>&1 |
  { grep --line-buffered -E '\[[0-9]+/[0-9]+\]|[Ee]rror' || true; }
ls "$out"/prism_optim-*.whl
