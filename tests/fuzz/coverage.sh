#!/usr/bin/env bash
# Prints how many lines of each reader the inputs of the fuzz targets reach: the committed ones and, where `make fuzz` has run,
# those it found. Needs clang and its llvm-profdata and llvm-cov.
#   tests/fuzz/coverage.sh [TARGET…]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

readonly build=build/fuzz-coverage
declare -A files=(
  [safetensors]=prism/io/safetensors.cpp
  [config]="prism/io/config.cpp prism/io/config_table.cpp prism/io/config_toml.cpp"
  [json_lines]=prism/io/json_lines.cpp
  [jsonl]=prism/data/jsonl_reader.cpp
  [shard_header]="prism/data/shards.cpp prism/data/identity.cpp"
  [tokenizer_json]=prism/text/tokenizer_json.cpp
  [page]="prism/report/document.cpp prism/report/page.cpp prism/report/thin.cpp"
)
targets=("$@")
[[ ${#targets[@]} -gt 0 ]] || mapfile -t targets < <(sed -n 's/^prism_add_fuzz(\([a-z_]*\) .*/\1/p' tests/fuzz/targets.cmake)

cmake -S tests/fuzz/libfuzzer -B "$build" -G Ninja --log-level=WARNING -DCMAKE_CXX_COMPILER=clang++ \
  -DCMAKE_BUILD_TYPE=Debug -DPRISM_FUZZ_COVERAGE=ON
cmake --build "$build" ${JOBS:+--parallel "$JOBS"} --target "${targets[@]/#/fuzz_}" >/dev/null
python3 tests/fuzz/make_seeds.py "$build/seeds"
for target in "${targets[@]}"; do
  inputs=("$build/seeds/$target")
  [[ ! -d build/fuzz/corpus/$target ]] || inputs+=("build/fuzz/corpus/$target")
  LLVM_PROFILE_FILE="$build/$target.profraw" "$build/fuzz_$target" -runs=0 "${inputs[@]}" 2>/dev/null
  llvm-profdata merge -sparse "$build/$target.profraw" -o "$build/$target.profdata"
  # shellcheck disable=SC2086  # several files
  llvm-cov export "$build/fuzz_$target" -instr-profile="$build/$target.profdata" -summary-only ${files[$target]} |
    python3 -c '
import json, sys
lines = json.load(sys.stdin)["data"][0]["totals"]["lines"]
print("{}: {} of {} lines, {:.0f} %".format(sys.argv[1], lines["covered"], lines["count"], lines["percent"]))' "$target"
done
