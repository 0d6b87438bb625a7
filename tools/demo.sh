#!/usr/bin/env bash
# Write the demo corpus, index it, ask three questions.
set -euo pipefail
bin=${1:-.venv/bin}
out=${DEMO_DIR:-.demo}
JAVA_HOME=$("$(dirname "$0")/java.sh")
export JAVA_HOME
mkdir -p "$out"
"$bin/python" -m corpusmill_jobs.demo --out "$out/corpus"
code=0
"$bin/corpusmill" index "$out/corpus" --to "$out/index" || code=$?
[ "$code" = 0 ] || [ "$code" = 5 ] || exit "$code"
while IFS= read -r question; do
  printf '\n\033[1m? %s\033[0m\n' "$question"
  "$bin/corpusmill" query "$out/index" "$question"
done < <("$bin/python" -m corpusmill_jobs.demo --questions)
