#!/usr/bin/env bash
# Builds the fuzz targets with clang and runs each for SECONDS_EACH (60) seconds under the address and
# undefined-behavior sanitizers. Inputs that break a target stay in build/fuzz/found. `make fuzz` sets up clang and runs
# this. Only some targets:
#   tests/fuzz/run.sh [TARGET…]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

readonly build=build/fuzz
readonly seconds="${SECONDS_EACH:-60}"

targets=("$@")
if [[ ${#targets[@]} -eq 0 ]]; then
  mapfile -t targets < <(sed -n 's/^prism_add_fuzz(\([a-z_]*\) .*/\1/p' tests/fuzz/targets.cmake)
fi
cmake -S tests/fuzz/libfuzzer -B "$build" -G Ninja --log-level=WARNING -DCMAKE_CXX_COMPILER=clang++ \
  -DCMAKE_BUILD_TYPE=RelWithDebInfo
cmake --build "$build" ${JOBS:+--parallel "$JOBS"} --target "${targets[@]/#/fuzz_}"

python3 tests/fuzz/make_seeds.py "$build/seeds"
mkdir -p "$build/found"
status=0
for target in "${targets[@]}"; do
  echo "fuzz: $target, $seconds s"
  mkdir -p "$build/corpus/$target"
  "$build/fuzz_$target" "$build/corpus/$target" "$build/seeds/$target" -max_total_time="$seconds" -timeout=10 \
    -rss_limit_mb=4096 -artifact_prefix="$build/found/$target-" -print_final_stats=1 2>"$build/$target.log" || status=1
  grep -E 'stat::(number_of_executed_units|peak_rss_mb)|ERROR|SUMMARY|Test unit written' "$build/$target.log" || true
done
exit $status
