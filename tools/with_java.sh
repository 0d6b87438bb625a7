#!/usr/bin/env bash
# Run a command with the JAVA_HOME that tools/java.sh finds.
set -euo pipefail
JAVA_HOME=$("$(dirname "$0")/java.sh")
export JAVA_HOME
exec "$@"
