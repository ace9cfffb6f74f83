#!/usr/bin/env bash
# Runs every test that needs a GPU from build/release: CTest's label gpu, pytest's mark gpu, then the kernel tests under
# compute-sanitizer, if it is installed. Ends with the summary lines of each. `make test-gpu` builds everything first.
#   PYTHON=          Python interpreter
#   NO_SANITIZER=1   skip compute-sanitizer
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
status=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT
run() {
  echo "== $*" | tee -a "$log"
  "$@" 2>&1 | tee -a "$log" || status=1
}

run ctest --test-dir build/release -L gpu --output-on-failure --no-tests=error
export PYTHONPATH="$PWD/build/release/python"
mapfile -t files < <(grep -l 'mark\.gpu' tests/python/test_*.py)
run "${PYTHON:-python3}" -m pytest -m gpu "${files[@]}"

if [[ -z ${NO_SANITIZER:-} ]] && command -v compute-sanitizer >/dev/null; then
  # Check only our kernels. Without torch's cache each tensor is an allocation of its own, so overruns are found.
  export PYTORCH_NO_CUDA_MEMORY_CACHING=1
  for tool in memcheck racecheck; do
    check=(compute-sanitizer --tool "$tool" --kernel-name kns=prism --error-exitcode 1)
    [[ $tool == memcheck ]] && check+=(--report-api-errors no)
    run "${check[@]}" build/release/tests/cuda/test_cuda_kernels --gtest_brief=1
    run "${check[@]}" build/release/tests/model/test_model --gtest_brief=1 --gtest_filter='CudaOps.*'
  done
fi

echo
grep -E '^== |tests passed|(passed|failed|skipped|error).* in [0-9.:]+s|\[ +(PASSED|FAILED|SKIPPED) +\]|(ERROR|RACECHECK) SUMMARY' "$log"
exit $status
