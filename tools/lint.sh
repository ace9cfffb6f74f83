#!/usr/bin/env bash
# tools/lint.sh format    formats all C++ and JavaScript sources
# tools/lint.sh check     checks the format, runs clang-tidy on the sources in build/lint/compile_commands.json, checks the Python types
#
# JOBS=    number of clang-tidy processes (default: all cores)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

sources() { git ls-files -z --cached --others --exclude-standard "$@"; }
# Sources that are compiled alone, and files in build/lint that include those compiled together; no generated sources.
compiled() {
  sed -n "s|^ *\"file\": \"$PWD/\(.*\)\",\{0,1\}$|\1|p" build/lint/compile_commands.json |
    grep -E '^build/.*/Unity/|\.cpp$' | grep -vE '^build/.*\.cpp$' | sort -u
}

case "${1:-}" in
  format) sources '*.h' '*.cpp' '*.cu' '*.cuh' '*.js' | xargs -0 -r clang-format -i ;;
  check)
    sources '*.h' '*.cpp' '*.cu' '*.cuh' '*.js' | xargs -0 -r clang-format --dry-run --Werror
    # With OpenMP torch's headers include omp.h, which clang does not have.
    compiled | xargs -d '\n' -r -n 1 -P "${JOBS:-$(nproc)}" clang-tidy --quiet --extra-arg=-fno-openmp -p build/lint
    sources '*.py' | xargs -0 -r "$PYTHON" -m mypy --no-error-summary
    ;;
  *)
    echo "usage: tools/lint.sh format|check" >&2
    exit 2
    ;;
esac
