#!/usr/bin/env bash
# Makes one virtual environment for each official client that the tests talk to, with the hashes that
# are locked for it, and leaves those alone that are there already.
#
#   bash tests/interop/make_wheel_venvs.sh [python] [folder]
set -euo pipefail

python="${1:-.venv/bin/python}"
folder="${2:-.venv-wheels}"

for version in 0.8.0 0.7.0 0.9.0 0.9.1.dev5; do
    name="apache-iggy-$version"
    bash tests/make_venv.sh "$python" "requirements/$name.txt" "$folder/$name"
done
