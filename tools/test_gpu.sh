#!/usr/bin/env bash
# Runs every test that needs a GPU, C++ and Python, from build/release; then the kernels' own tests under compute-sanitizer, where it is
# installed. `make test-gpu` builds them first. PYTHON= names the interpreter, NO_SANITIZER=1 leaves the last part out.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
status=0
run() {
  echo "== $*"
  "$@" || status=1
}

run ctest --test-dir build/release -L gpu --output-on-failure --no-tests=error
run build/release/tests/linalg/test_linalg --gtest_brief=1 --gtest_filter='*Gpu*'
export PYTHONPATH="$PWD/build/release/python"
run "${PYTHON:-python3}" -m pytest tests/python/test_optim_cuda.py tests/python/test_optim_kernels.py

if [[ -z ${NO_SANITIZER:-} ]] && command -v compute-sanitizer >/dev/null; then
  for tool in memcheck racecheck; do
    run compute-sanitizer --tool "$tool" --error-exitcode 1 build/release/tests/cuda/test_cuda_kernels --gtest_brief=1
  done
fi
exit $status
