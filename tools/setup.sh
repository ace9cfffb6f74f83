#!/usr/bin/env bash
# Installs what Prism needs and is missing.
#
#   tools/setup.sh build    compiler, libraries and torch
#   tools/setup.sh test     the same, the Python packages that the tests need, and a browser if one can be installed
#   tools/setup.sh clients  as for test without the browser, and timm with torchvision for tests/python/clients
#   tools/setup.sh lint     clang-format and clang-tidy
#   tools/setup.sh fuzz     clang with libFuzzer
#   tools/setup.sh list     only print the names of the library packages
#
# PYTHON=       interpreter that already has torch 2.11-2.15; it is checked, but nothing is installed into it
# TORCH=        torch requirement for .venv               (default torch==2.13.0)
# TORCH_INDEX=  package index for that torch              (default: pip's)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly torch_requirement="${TORCH:-torch==2.13.0}"
readonly torch_range=">=2.11,<2.16"
readonly timm_requirement="timm==1.0.30"

# command=package: the package is installed only if the command cannot be run.
readonly build_programs=(g++=g++ cmake=cmake ninja=ninja-build)
# For the browser test of the report. Without the font, Chromium draws no letters.
readonly browser_packages=(chromium fonts-liberation)
readonly lint_programs=(clang-format=clang-format clang-tidy=clang-tidy)
readonly fuzz_programs=(clang++=clang)
# Not needed if a .deps folder exists (tools/stage_deps.sh). ccache only saves time.
readonly build_packages=(
  ccache libcli11-dev libtomlplusplus-dev nlohmann-json3-dev libfmt-dev libxxhash-dev libutf8proc-dev libzstd-dev
  zlib1g-dev libgtest-dev
)
# `prism train` on several processes; .deps has no MPI, and a build without it trains in one process.
readonly mpi_packages=(libopenmpi-dev openmpi-bin)

die() {  # prints the first argument, then the others indented
  printf 'setup: %s\n' "$1" >&2
  [[ $# -eq 1 ]] || printf '  %s\n' "${@:2}" >&2
  exit 2
}

missing_programs() {
  local entry
  for entry in "$@"; do
    command -v "${entry%%=*}" >/dev/null || echo "${entry#*=}"
  done
}

missing_packages() {
  local package status
  for package in "$@"; do
    status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) || true
    [[ $status == installed ]] || echo "$package"
  done
}

install_packages() {
  [[ $# -gt 0 ]] || return 0
  command -v apt-get >/dev/null ||
    die "apt-get not found; install these Debian packages, or your system's equivalents: $*" \
        "or copy the libraries from a Debian machine with tools/stage_deps.sh"
  local as_root=()
  if [[ $EUID -ne 0 ]]; then
    sudo -n true 2>/dev/null || die "Debian packages are missing; run" "sudo apt-get install -y $*"
    as_root=(sudo -n)
  fi
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=600)
  echo "setup: installing $*"
  # On a fresh machine the package lists may be empty or old: update them and try again.
  "${apt[@]}" install -y --no-install-recommends "$@" ||
    { "${apt[@]}" update && "${apt[@]}" install -y --no-install-recommends "$@"; } ||
    die "apt-get could not install: $*"
}

# Without a browser its test is skipped; only CI requires it.
install_browser() {
  local name
  for name in "${CHROMIUM:-chromium}" chromium-browser google-chrome google-chrome-stable chrome; do
    command -v "$name" >/dev/null && return
  done
  (install_packages "${browser_packages[@]}") || [[ -z ${CI:-} ]] || die "CI needs Chromium for the browser test"
}

# Installs libFuzzer, whose package has clang's version in its name.
install_fuzzer() {
  echo 'extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned long) { return 0; }' |
    clang++ -x c++ - -fsanitize=fuzzer,address -o /dev/null 2>/dev/null ||
    install_packages "libclang-rt-$(clang++ -dumpversion | cut -d. -f1)-dev"
}

# Prints the packages that PYTHON lacks, then "checked" to show that it ran. Does not import torch.
lacks() {
  "$PYTHON" - "$torch_range" "$@" <<'PY'
import re, sys
from importlib.metadata import PackageNotFoundError, version
least, below = (tuple(map(int, re.findall(r"\d+", part))) for part in sys.argv[1].split(","))
for name in ["torch", *sys.argv[2:]]:
    try:
        found = version(name)
    except PackageNotFoundError:
        print(f"{name} (not installed)")
        continue
    if name == "torch" and not least <= tuple(map(int, re.findall(r"\d+", found)[:2])) < below:
        print(f"torch {sys.argv[1]} (it has {found})")
print("checked")
PY
}

check_given_python() {
  command -v "$PYTHON" >/dev/null || die "PYTHON=$PYTHON cannot be run; give the path of a Python interpreter with torch"
  local modules=()
  [[ $1 == build ]] || mapfile -t modules < <(sed -n 's/^\([A-Za-z0-9_.-]*\)==.*/\1/p' tools/requirements.txt)
  local lacking
  lacking=$(lacks "${modules[@]}") || true
  [[ $lacking == *checked ]] || die "PYTHON=$PYTHON is not a working Python 3 interpreter"
  lacking=${lacking%checked} lacking=${lacking%$'\n'}
  [[ -z $lacking ]] ||
    die "PYTHON=$PYTHON lacks ${lacking//$'\n'/; }" \
        "install the missing packages (versions that work: tools/requirements.txt), or leave PYTHON unset to use .venv"
}

make_venv() {
  local stamp=.venv/.prism-setup wanted
  wanted="$torch_requirement ${TORCH_INDEX:-} $(cksum <tools/requirements.txt)"
  [[ -x .venv/bin/python && -f $stamp && $(<"$stamp") == "$wanted" ]] && return

  .venv/bin/python -c 'import pip' 2>/dev/null || python3 -m venv --clear .venv ||
    die "python3 could not create .venv (see the message above); remove it and try again"
  local pip=(.venv/bin/python -m pip --disable-pip-version-check --quiet)
  echo "setup: installing $torch_requirement into .venv"
  "${pip[@]}" install ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} "$torch_requirement" ||
    die "pip could not install $torch_requirement${TORCH_INDEX:+ from $TORCH_INDEX}"
  # Keep pip from replacing the chosen torch.
  .venv/bin/python -c 'from importlib.metadata import version; print("torch==" + version("torch"))' >.venv/torch.txt
  echo "setup: installing tools/requirements.txt into .venv"
  "${pip[@]}" install -r tools/requirements.txt -c .venv/torch.txt || die "pip could not install tools/requirements.txt"
  PYTHON=.venv/bin/python check_given_python test
  printf '%s' "$wanted" >"$stamp"
}

# Installs timm and torchvision outside .venv and without dependencies, which could replace torch; tools/requirements.txt has those that they need.
install_clients() {
  local python=${PYTHON:-.venv/bin/python} folder=build/clients minor wanted
  minor=$("$python" -c 'from importlib.metadata import version; print(version("torch").split(".")[1])')
  wanted="$timm_requirement torchvision==0.$((minor + 15)).* ${TORCH_INDEX:-}"  # torchvision 0.28 belongs to torch 2.13
  [[ -f $folder/.prism-setup && $(<"$folder/.prism-setup") == "$wanted" ]] && return
  rm -rf "$folder"
  echo "setup: installing $timm_requirement and torchvision 0.$((minor + 15)) into $folder"
  "$python" -m pip --disable-pip-version-check --quiet install --no-deps --target "$folder" ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} \
    "$timm_requirement" "torchvision==0.$((minor + 15)).*" || die "pip could not install timm and torchvision into $folder"
  printf '%s' "$wanted" >"$folder/.prism-setup"
}

main() {
  local purpose="${1:-}" missing=()
  case $purpose in
    build | test | clients)
      mapfile -t missing < <(
        missing_programs "${build_programs[@]}"
        [[ -d .deps ]] || missing_packages "${build_packages[@]}" "${mpi_packages[@]}"
        [[ -n ${PYTHON:-} ]] || python3 -c 'import ensurepip' 2>/dev/null || echo python3-venv
      )
      ;;
    list) printf '%s\n' "${build_packages[@]}" && return ;;
    lint) mapfile -t missing < <(missing_programs "${lint_programs[@]}") ;;
    fuzz) mapfile -t missing < <(missing_programs "${fuzz_programs[@]}") ;;
    *) die "usage: tools/setup.sh build|test|clients|lint|fuzz|list" ;;
  esac

  mkdir -p build
  exec 9>build/.setup.lock  # so that two makes do not fill one .venv at once
  flock 9
  install_packages "${missing[@]}"
  [[ $purpose != test ]] || install_browser
  case $purpose in
    lint) return ;;
    fuzz) install_fuzzer && return ;;
  esac
  if [[ -n ${PYTHON:-} ]]; then check_given_python "$purpose"; else make_venv; fi
  [[ $purpose != clients ]] || install_clients
}

main "$@"
