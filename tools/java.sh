#!/usr/bin/env bash
# Print the JAVA_HOME to use (Java 17 or newer): the environment's, the one on PATH, or one brought into .jre.
# Spark 4 needs 17; the runtime comes from Debian's package where apt can fetch it without installing anything.
set -euo pipefail
cd "$(dirname "$0")/.."
works() {
  local out
  out=$("$1" -version 2>&1) || return 1
  [[ $out =~ version\ \"([0-9]+) ]] && ((BASH_REMATCH[1] >= 17))
}
if [ -n "${JAVA_HOME:-}" ] && works "$JAVA_HOME/bin/java"; then echo "$JAVA_HOME"; exit 0; fi
if command -v java >/dev/null && works java; then dirname "$(dirname "$(readlink -f "$(command -v java)")")"; exit 0; fi
for home in .jre/usr/lib/jvm/*; do
  if [ -x "$home/bin/java" ] && works "$home/bin/java"; then echo "$PWD/$home"; exit 0; fi
done
hint="corpusmill needs Java 17 or newer for Spark: install it (Debian: apt-get install openjdk-17-jre-headless; macOS: brew install openjdk@17) or set JAVA_HOME"
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || { echo "$hint" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for package in openjdk-21-jre-headless openjdk-17-jre-headless; do
  if (cd "$work" && apt-get download "$package" >/dev/null 2>&1); then break; fi
done
deb=$(find "$work" -name '*.deb' | head -n 1)
[ -n "$deb" ] || { echo "$hint" >&2; exit 1; }
mkdir -p .jre
dpkg-deb -x "$deb" .jre
for home in .jre/usr/lib/jvm/*; do
  # Debian keeps the JRE's configuration under /etc; link the copy that came with the package.
  find "$home" -type l | while read -r link; do
    target=$(readlink "$link")
    case $target in /etc/*) ln -sfn "$PWD/.jre$target" "$link" ;; esac
  done
  if [ -x "$home/bin/java" ] && works "$home/bin/java"; then echo "$PWD/$home"; exit 0; fi
done
echo "$hint" >&2
exit 1
