#!/bin/sh
# Makes a virtual environment with pip:  tools/venv.sh DIRECTORY
# An environment that works is kept. The interpreter is $PYTHON, or else the first of python3, python3.14, ... that is
# new enough. If it has no `venv` (as on a bare Debian), virtualenv or uv makes the environment. If neither is
# installed, a message says what to install.
set -eu
directory=$1
new_enough='import sys; sys.exit(sys.version_info < (3, 11))'

if "$directory/bin/python" -c "import pip; $new_enough" >/dev/null 2>&1; then
    exit 0
fi

python=
for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11 python}; do
    if command -v "$candidate" >/dev/null 2>&1 && "$candidate" -c "$new_enough" >/dev/null 2>&1; then
        python=$candidate
        break
    fi
done
if [ -z "$python" ]; then
    echo "wharfinger needs Python 3.11 or newer: looked for ${PYTHON:-python3 and python3.11 to python3.14}. Name one with PYTHON=..." >&2
    exit 1
fi

rm -rf "$directory"
if "$python" -c 'import venv, ensurepip' >/dev/null 2>&1; then
    exec "$python" -m venv "$directory"
elif "$python" -c 'import virtualenv' >/dev/null 2>&1; then
    exec "$python" -m virtualenv --quiet "$directory"
elif command -v virtualenv >/dev/null 2>&1; then
    exec virtualenv --quiet --python "$python" "$directory"
elif command -v uv >/dev/null 2>&1; then
    exec uv venv --quiet --seed --python "$python" "$directory"
fi
echo "$python cannot make virtual environments: install the package python3-venv (apt-get install python3-venv), then run make again" >&2
exit 1
