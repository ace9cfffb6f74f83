#!/usr/bin/env bash
# Every benchmark, one after the other: what `make bench` runs.
set -euo pipefail
cd "$(dirname "$0")/.."

# Some virtual machines claim AMX and trap when oneDNN uses it for torch.optim.Muon's bfloat16 products.
export ONEDNN_MAX_CPU_ISA=${ONEDNN_MAX_CPU_ISA:-AVX512_CORE_BF16}

"$PYTHON" bench/optimizer_step.py build/release/bench/optimizer_step "$@"
PYTHONPATH="build/release/python${PYTHONPATH:+:$PYTHONPATH}" "$PYTHON" bench/python_step.py
"$PYTHON" bench/model_step.py build/release/bench/model_step
