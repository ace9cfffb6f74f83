#!/usr/bin/env bash
# Copies the libraries Prism is compiled with from this Debian machine into .deps, where CMake looks first: headers,
# libraries and CMake files of a few MiB in all. With that folder the tree builds on a machine without the packages, as
# long as its compiler and C library are not older:
#
#   tools/stage_deps.sh && rsync -a ./ other:prism/ && ssh other 'cd prism && make build PYTHON=python3'
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

rm -rf .deps
tools/setup.sh list | grep -v '^ccache$' | while read -r package; do
  dpkg -L "$package" | grep -E '^/usr/(include/|lib/.*\.(a|so)$|(lib|share)/.*cmake)' | while read -r file; do
    [[ -d $file ]] && continue
    mkdir -p ".deps$(dirname "${file#/usr}")"
    # The name without a version is a link; what it leads to belongs to it.
    if [[ $file == *.so ]]; then cp -a "$file"* ".deps$(dirname "${file#/usr}")/"; else cp -a "$file" ".deps${file#/usr}"; fi
  done
done
find -L .deps -type l -exec echo 'broken link: {}' \; >&2
du -sh .deps
