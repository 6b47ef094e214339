#!/usr/bin/env bash
# Makes a virtual environment that holds this project, what the gate has, and another PySpark.
#
#   bash tests/lake/make_venv.sh python 4.1 folder
#
# The version of the gate has no lock of its own.
set -euo pipefail

python="$1" version="$2" place="$3"
lock="requirements/pyspark-$version.txt"

bash tests/make_project_venv.sh "$python" requirements/gate.txt "$place"
if [ ! -f "$lock" ]; then
    if "$place/bin/python" -c "import pyspark, sys; sys.exit(not pyspark.__version__.startswith('$version.'))"; then
        exit 0
    fi
    echo "There is no $lock; choose another version with SPARK=" >&2
    exit 1
fi
mark="$place/.pyspark"
if [ -f "$mark" ] && cmp -s "$mark" "$lock"; then
    exit 0
fi
if command -v uv > /dev/null; then
    uv pip install --quiet --python "$place/bin/python" --require-hashes --requirement "$lock"
else
    "$place/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes \
        --requirement "$lock"
fi
cp "$lock" "$mark"
