#!/usr/bin/env bash
# Creates .venv and installs Updraft (editable, exact versions) into it. Called by `make setup`.
# PYTHON=... chooses the interpreter. Safe to run again after an interruption.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { printf 'updraft: %s\n' "$1" >&2; exit 1; }

# Java first: it is the one thing pip cannot install, so nobody should wait for a download to learn of it.
get_java="install it with 'sudo apt install openjdk-17-jre-headless' or 'brew install openjdk@17', or point JAVA_HOME at one"
if [ -n "${JAVA_HOME:-}" ]; then java="$JAVA_HOME/bin/java"; else java=$(command -v java || true); fi
{ [ -n "$java" ] && [ -x "$java" ]; } || fail "no Java found, and Spark needs Java 17 or newer: $get_java"
said=$("$java" -version 2>&1 || true)
major=$(sed -nE 's/.*version "(1\.)?([0-9]+).*/\2/p' <<<"$said" | head -n 1)
[ -n "$major" ] || fail "$java does not run, and Spark needs Java 17 or newer: $get_java"
[ "$major" -ge 17 ] || fail "$java is Java $major, and Spark needs Java 17 or newer: $get_java"

usable() { "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }

if ! .venv/bin/python -c 'import pip' >/dev/null 2>&1; then
  python=""
  # A named interpreter is obeyed; otherwise the version the pins were made with comes first.
  for candidate in ${PYTHON:-python3.11 python3.12 python3.13 python3 python}; do
    if usable "$candidate"; then python=$candidate; break; fi
  done
  [ -n "$python" ] || fail "no Python 3.11 or newer with venv found (Debian and Ubuntu: 'sudo apt install python3-venv'); set PYTHON=/path/to/python"
  echo "creating .venv with $("$python" --version)"
  "$python" -m venv --clear .venv
fi

echo "installing Updraft and its dependencies into .venv"
.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-input \
  --constraint constraints.txt --editable '.[bench,dev]'
touch .venv/.updraft-ready
