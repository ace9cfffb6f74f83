#!/usr/bin/env bash
# Runs every benchmark (`make bench`) with build/release/prism and the interpreter PYTHON=.
set -euo pipefail
cd "$(dirname "$0")/.."

# Some virtual machines announce AMX but trap when oneDNN uses it for torch.optim.Muon's bfloat16 products.
export ONEDNN_MAX_CPU_ISA=${ONEDNN_MAX_CPU_ISA:-AVX512_CORE_BF16}

"$PYTHON" bench/peers.py optimizer
echo
build/release/prism bench kernels
echo
"$PYTHON" bench/peers.py train
