#!/usr/bin/env bash
# Copies the libraries that Prism needs (headers, libraries and CMake files, a few MiB) from this Debian machine into
# .deps, where CMake looks first. With that folder the tree builds on a machine without the packages, if the machine's
# compiler and C library are not older than here:
#
#   tools/stage_deps.sh && rsync -a ./ other:prism/ && ssh other 'cd prism && make build PYTHON=python3'
#
# If the copy has no git history, configure with -DPRISM_COMMIT=... so that results name the commit.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Copies a library with its versioned files. The unversioned name is a link, sometimes absolute; make it relative.
copy_shared() {
  cp -a "$1"* "$2/"
  ln -sfn "$(basename "$(readlink "$1")")" "$2/$(basename "$1")"
}

rm -rf .deps
tools/setup.sh list | grep -v '^ccache$' | while read -r package; do
  dpkg -L "$package" | grep -E '^/usr/(include/|lib/.*\.(a|so)$|(lib|share)/.*cmake)' | while read -r file; do
    [[ -d $file ]] && continue
    folder=".deps$(dirname "${file#/usr}")"
    mkdir -p "$folder"
    if [[ -L $file && $file == *.so ]]; then copy_shared "$file" "$folder"; else cp -a "$file" "$folder/"; fi
  done
done

broken=$(find -L .deps -type l)
[[ -z $broken ]] || { printf 'stage_deps: broken links: %s\n' "$broken" >&2; exit 1; }
du -sh .deps
