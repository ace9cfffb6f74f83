#!/usr/bin/env bash
# tools/lint.sh format    formats all C++ and JavaScript sources
# tools/lint.sh check     checks the format, runs clang-tidy on the sources in build/lint/compile_commands.json, checks the Python types
#
# JOBS=    number of clang-tidy processes (default: all cores)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

sources() { git ls-files -z --cached --others --exclude-standard "$@"; }
compiled() { sed -n "s|^ *\"file\": \"$PWD/\(.*\.cpp\)\",\{0,1\}$|\1|p" build/lint/compile_commands.json | grep -v '^build/' | sort -u; }

case "${1:-}" in
  format) sources '*.h' '*.cpp' '*.cu' '*.cuh' '*.js' | xargs -0 -r clang-format -i ;;
  check)
    sources '*.h' '*.cpp' '*.cu' '*.cuh' '*.js' | xargs -0 -r clang-format --dry-run --Werror
    compiled | xargs -d '\n' -r -n 1 -P "${JOBS:-$(nproc)}" clang-tidy --quiet -p build/lint
    sources '*.py' | xargs -0 -r "$PYTHON" -m mypy --no-error-summary
    ;;
  *)
    echo "usage: tools/lint.sh format|check" >&2
    exit 2
    ;;
esac
