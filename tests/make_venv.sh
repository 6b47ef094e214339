#!/usr/bin/env bash
# Makes a virtual environment that holds what a lock names, with its hashes; leaves one alone that is
# there already and was made of the same.
#
#   bash tests/make_venv.sh python lock folder
set -euo pipefail

python="$1" lock="$2" place="$3"

# An environment can neither be moved nor outlive its interpreter.
fingerprint="$PWD $("$python" -c 'import sys; print(sys.base_prefix, sys.version)') $(cksum < "$lock")"
if [ -f "$place/.fingerprint" ] && [ "$(cat "$place/.fingerprint")" = "$fingerprint" ]; then
    exit 0
fi
echo "Setting up $place"
rm -rf "$place"
if command -v uv > /dev/null; then
    uv venv --quiet --python "$python" "$place"
    uv pip install --quiet --python "$place/bin/python" --require-hashes --requirement "$lock"
else
    "$python" -m venv "$place"
    "$place/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes \
        --requirement "$lock"
fi
echo "$fingerprint" > "$place/.fingerprint"
