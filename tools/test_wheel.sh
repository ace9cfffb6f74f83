#!/usr/bin/env bash
# Builds the wheel of prism_optim (tools/make_wheel.sh), installs it into a new environment and runs the Python examples there, away from the sources.
#
# The environment uses the packages of the interpreter that the wheel was built with (.venv or PYTHON=), so that nothing is downloaded;
# the wheel takes precedence over a prism_optim found there. With TORCH=, all packages are installed instead; it must be the torch version of the wheel:
#   TORCH=torch==2.13.0 TORCH_INDEX=URL tools/test_wheel.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly python="${PYTHON:-.venv/bin/python}" out=build/wheel-test

rm -rf "$out"
WHEEL_DIR="$out" tools/make_wheel.sh
echo "== a new environment"
"$python" -m venv "$out/env"
pip=("$out/env/bin/python" -m pip --quiet --disable-pip-version-check)
if [[ -n ${TORCH:-} ]]; then
  "${pip[@]}" install ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} "$TORCH"
  "${pip[@]}" install "$out"/prism_optim-*.whl accelerate lightning numpy transformers
else
  "${pip[@]}" install --no-deps "$out"/prism_optim-*.whl
  site=$("$out/env/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  "$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > "$site/packages.pth"
fi

cp -r examples "$out/examples"
cd "$out"
export PYTHONPATH=
env/bin/python - <<'PYTHON'
import pathlib, sys, prism_optim
assert pathlib.Path(prism_optim.__file__).is_relative_to(pathlib.Path(sys.prefix).resolve()), prism_optim.__file__
print(f"prism_optim {prism_optim.__version__} for torch {prism_optim.TORCH_VERSION} from {pathlib.Path(prism_optim.__file__).parent}")
PYTHON
for example in plain_loop switch_adamw hf_trainer lightning_module; do
  echo "== $example"
  env/bin/python "examples/$example.py"
done
echo "== the wheel works"
