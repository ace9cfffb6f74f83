#!/usr/bin/env bash
# tools/lint.sh format    formats all C++ and JavaScript sources
# tools/lint.sh check     checks the format, runs clang-tidy on the sources in build/lint/compile_commands.json, checks the Python types
#                         with the package that was built last
#
# JOBS=    number of clang-tidy processes (default: all cores)
# SINCE=   a commit: run clang-tidy only on sources that changed since then, and on those beside a header that did
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

sources() { git ls-files -z --cached --others --exclude-standard "$@"; }
# Sources that are compiled alone, and files in build/lint that include those compiled together; no generated sources.
compiled() {
  sed -n "s|^ *\"file\": \"$PWD/\(.*\)\",\{0,1\}$|\1|p" build/lint/compile_commands.json |
    grep -E '^build/.*/Unity/|\.cpp$' | grep -vE '^build/.*\.cpp$' | sort -u | if [[ -n "${SINCE:-}" ]]; then changed; else cat; fi
}
# Of the inputs read from standard input, those with a source that changed since $SINCE.
changed() {
  local parts input
  parts=$(git diff --name-only "$SINCE" -- '*.cpp' '*.h' && git ls-files --others --exclude-standard '*.cpp' '*.h')
  parts=$(sed 's|[^/]*\.h$||' <<<"$parts")  # of a header, its folder
  while read -r input; do
    if [[ -n "$parts" ]] && { echo "$input"; [[ "$input" != build/* ]] || cat "$input"; } | grep -qF "$parts"; then echo "$input"; fi
  done
}

case "${1:-}" in
  format) sources '*.h' '*.cpp' '*.cu' '*.cuh' '*.js' | xargs -0 -r clang-format -i ;;
  check)
    if ! "$PYTHON" -c 'import prism_optim' 2>/dev/null; then
      echo "lint: mypy reads the built package prism_optim, which $PYTHON cannot import; run make build first" >&2
      exit 2
    fi
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
