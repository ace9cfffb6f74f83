#!/usr/bin/env bash
# Builds the wheel of prism_optim with the torch of .venv (or of PYTHON=), installs it into a new environment and runs the Python examples there.
#
# TORCH=, TORCH_INDEX=    as in setup.sh; torch must be the version the wheel was built with
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly python="${PYTHON:-.venv/bin/python}" out=build/wheel-test
readonly quiet=(--quiet --disable-pip-version-check)

rm -rf "$out"
"$python" -m pip "${quiet[@]}" wheel --no-build-isolation --no-deps --wheel-dir "$out" .
"$python" -m venv "$out/env"
built_with=$("$python" -c 'import torch; print(torch.__version__)')
pip=("$out/env/bin/python" -m pip "${quiet[@]}")
"${pip[@]}" install ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} "${TORCH:-torch==$built_with}"
"${pip[@]}" install "$out"/prism_optim-*.whl accelerate lightning numpy transformers

cp -r examples "$out/examples"  # away from the sources, so that nothing but the wheel can be imported
cd "$out"
for example in plain_loop switch_adamw hf_trainer lightning_module; do
  echo "== $example"
  env/bin/python "examples/$example.py"
done
