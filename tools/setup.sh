#!/usr/bin/env bash
# Make the virtual environment from the lock, install the project into it, and see to a Java runtime for Spark.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${1:-.venv}
"${PYTHON:-python3}" - <<'PY'
import sys
if not (3, 11) <= sys.version_info[:2] < (3, 13):
    sys.exit(f"corpusmill needs Python 3.11 or 3.12, found {sys.version.split()[0]}; set PYTHON=/path/to/python3.11")
PY
[ -x "$venv/bin/python" ] || "${PYTHON:-python3}" -m venv "$venv"
echo "installing the packages of requirements.lock into $venv (about 2 GB, a minute or two)"
uv=$(grep -E '^uv==' requirements.lock)
"$venv/bin/python" -m pip install -q --disable-pip-version-check "$uv"
"$venv/bin/uv" pip sync -q --compile-bytecode --python "$venv/bin/python" requirements.lock
"$venv/bin/uv" pip install -q --python "$venv/bin/python" --no-deps -e .
java=$(tools/java.sh)
echo "Java for Spark: $java"
