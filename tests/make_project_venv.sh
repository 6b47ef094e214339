#!/usr/bin/env bash
# Makes a virtual environment that holds this project, as editable sources with its C extensions, and
# what a lock names for it, with its hashes.
#
#   bash tests/make_project_venv.sh python lock folder
#
# CFLAGS reach the compiler. What the lock names is installed only if the environment is another one
# than before; the project always is, because environments of several Pythons share the built files.
set -euo pipefail

python="$1" lock="$2" place="$3"
build=requirements/build.txt

if command -v uv > /dev/null; then
    install=(uv pip install --quiet --python "$place/bin/python")
else
    install=("$place/bin/python" -m pip install --quiet --disable-pip-version-check)
fi

# An environment can neither be moved nor outlive its interpreter.
interpreter="$("$python" -c 'import sys; print(sys.base_prefix, sys.version.split()[0])')"
fingerprint="$PWD $interpreter $(cat "$build" "$lock" | cksum)"
if [ ! -f "$place/.fingerprint" ] || [ "$(cat "$place/.fingerprint")" != "$fingerprint" ]; then
    echo "Setting up $place with Python ${interpreter##* }; the first time takes about a minute."
    rm -rf "$place"
    if command -v uv > /dev/null; then
        uv venv --quiet --python "$python" "$place"
    else
        "$python" -m venv "$place"
    fi
    "${install[@]}" --require-hashes --requirement "$build"
    "${install[@]}" --require-hashes --no-build-isolation --requirement "$lock"
    echo "$fingerprint" > "$place/.fingerprint"
fi

suffix="$("$place/bin/python" -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))')"
rm -f "protocol/iggy_protocol/_batch$suffix" iggy_ref_server/_uring.abi3.so
"${install[@]}" --no-deps --no-build-isolation --editable .
if command -v gcc > /dev/null; then
    for built in "protocol/iggy_protocol/_batch$suffix" iggy_ref_server/_uring.abi3.so; do
        [ -f "$built" ] && continue
        echo "gcc is there, yet $built was not built. To see why:" >&2
        echo "  CFLAGS='${CFLAGS:-}' $place/bin/pip install --verbose --no-deps --no-build-isolation -e ." >&2
        exit 1
    done
fi
