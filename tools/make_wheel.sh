#!/usr/bin/env bash
# Builds the wheel of prism_optim and prints its name. The wheel works only with the torch it is built with: that of .venv or PYTHON=.
# WHEEL_DIR=    folder for the wheel (default dist)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly python="${PYTHON:-.venv/bin/python}" out="${WHEEL_DIR:-dist}"
"$python" -c 'import scikit_build_core' 2>/dev/null || "$python" -m pip --quiet install 'scikit-build-core>=0.10'
rm -f "$out"/prism_optim-*.whl
# Of pip's long output, show only Ninja's progress and errors.
"$python" -m pip --disable-pip-version-check wheel --verbose --no-build-isolation --no-deps --wheel-dir "$out" . 2>&1 |
  { grep --line-buffered -E '\[[0-9]+/[0-9]+\]|[Ee]rror' || true; }
ls "$out"/prism_optim-*.whl
