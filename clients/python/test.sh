#!/bin/sh
# Tests the Python client against the real server.
#
#   LIMINA_BIN=target/release/limina clients/python/test.sh [smoke|full|package] [arguments of pytest]
#
# `smoke` is the short run. `full` also installs the package as a user would, checks types and style, and runs all tests and examples.
# `package` builds the package, and checks what a package index would show of it.
# The virtual environments are in target/clients, and are reused until the requirements change.
set -eu

run=${1:-smoke}
[ $# -gt 0 ] && shift
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
: "${LIMINA_BIN:?must be the path of the server}"
case $LIMINA_BIN in /*) ;; *) LIMINA_BIN=$PWD/$LIMINA_BIN ;; esac
export LIMINA_BIN
python=${PYTHON:-python3}

case $run in
    smoke) requirements=requirements.txt ;;
    full) requirements=requirements-full.txt ;;
    package) requirements=requirements-package.txt ;;
    *) echo "usage: test.sh [smoke|full|package]" >&2; exit 2 ;;
esac

venv=${CARGO_TARGET_DIR:-$root/target}/clients/limina-python-$run
stamp=$("$python" --version; cat "$here"/tests/requirements*.txt)
if [ "$(cat "$venv/stamp" 2>/dev/null)" != "$stamp" ]; then
    rm -rf "$venv"
    "$python" -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$here/tests/$requirements"
    echo "$stamp" > "$venv/stamp"
fi

cd "$here"
# No files beside the sources, also if they are not writable.
export PYTHONDONTWRITEBYTECODE=1
if [ "$run" = package ]; then
    built=$venv/built
    rm -rf "$built"
    "$venv/bin/python" -m build --outdir "$built" . > "$venv/build.log" 2>&1 || { cat "$venv/build.log"; exit 1; }
    "$venv/bin/python" -m twine check --strict "$built"/*
    for kept in LICENSE limina/py.typed; do
        "$venv/bin/python" -m zipfile --list "$built"/*.whl | grep -q "$kept" || { echo "$kept is not in the wheel" >&2; exit 1; }
    done
    exit
fi
if [ "$run" = smoke ]; then
    PYTHONPATH=src exec "$venv/bin/python" -m pytest -q -p no:cacheprovider -m smoke "$@"
fi
"$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --force-reinstall .
"$venv/bin/python" unasync.py --check
"$venv/bin/ruff" check --quiet --no-cache . ../../examples/python --config pyproject.toml
"$venv/bin/mypy" --no-error-summary --cache-dir "$venv/mypy"
exec "$venv/bin/python" -m pytest -q -p no:cacheprovider "$@"
