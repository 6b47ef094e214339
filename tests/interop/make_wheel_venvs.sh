#!/usr/bin/env bash
# Makes one virtual environment for each official client that the tests talk to, and leaves those
# alone that are there already.
#
#   bash tests/interop/make_wheel_venvs.sh [python] [folder]
set -euo pipefail

python="${1:-.venv/bin/python}"
folder="${2:-.venv-wheels}"

# An environment can neither be moved nor outlive its interpreter.
fingerprint="$PWD $("$python" -c 'import sys; print(sys.base_prefix, sys.version)')"

for version in 0.8.0 0.7.0; do
    place="$folder/apache-iggy-$version"
    if [ -f "$place/.fingerprint" ] && [ "$(cat "$place/.fingerprint")" = "$fingerprint" ]; then
        continue
    fi
    echo "Setting up $place"
    rm -rf "$place"
    if command -v uv > /dev/null; then
        uv venv --quiet --python "$python" "$place"
        uv pip install --quiet --python "$place/bin/python" "apache-iggy==$version"
    else
        "$python" -m venv "$place"
        "$place/bin/python" -m pip install --quiet --disable-pip-version-check "apache-iggy==$version"
    fi
    echo "$fingerprint" > "$place/.fingerprint"
done
