#!/usr/bin/env bash
# Build the C extension with the address and undefined-behaviour sanitizers and run its tests on it.
#
# usage: tests/protocol/sanitize.sh PYTHON [pytest arguments]
#
# The package is copied beside the sanitized extension, so that the one built for daily use is
# neither touched nor loaded by mistake; the run fails unless the tests really used the copy.
set -euo pipefail

python="$(command -v "${1:?the Python to use is missing}")"
shift
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
case "$python" in /*) ;; *) python="$PWD/$python" ;; esac
cd "$root"

place="$(mktemp -d)"
trap 'rm -rf "$place"' EXIT
cp -r protocol/iggy_protocol "$place/"
rm -f "$place"/iggy_protocol/*.so

setting() { "$python" -c "import sysconfig; print(sysconfig.$1)"; }
library="$place/iggy_protocol/_batch$(setting 'get_config_var("EXT_SUFFIX")')"
gcc -std=c11 -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all \
    -Wall -Wextra -Wconversion -Wshadow -Wstrict-prototypes -Werror -shared -fPIC \
    -isystem "$(setting 'get_path("include")')" protocol/iggy_protocol/_batch.c -o "$library"

# Loaded by pytest: refuses to pass when another extension, or none, was under test.
cat > "$place/sanitized_only.py" <<'PLUGIN'
import os
import sys
from pathlib import Path


def pytest_sessionfinish(session):
    loaded = getattr(sys.modules.get("iggy_protocol._batch"), "__file__", None)
    if loaded != os.environ["SANITIZED_LIBRARY"]:
        session.exitstatus = 1
        print(f"\nnot sanitized: the tests used {loaded}")
    elif "libasan" not in Path("/proc/self/maps").read_text():
        session.exitstatus = 1
        print("\nnot sanitized: the address sanitizer is not in this process")
    else:
        print(f"\nsanitized: {loaded}")
PLUGIN

# Python frees nothing of its own at exit, so leaks are watched by a test instead.
env -u PYTHONPATH \
    LD_PRELOAD="$(gcc -print-file-name=libasan.so)" \
    ASAN_OPTIONS=detect_leaks=0:abort_on_error=1:allocator_may_return_null=1 \
    UBSAN_OPTIONS=print_stacktrace=1 \
    PYTHONMALLOC=malloc PYTHONDONTWRITEBYTECODE=1 SANITIZED_LIBRARY="$library" \
    "$python" -m pytest -q --capture=sys -p no:cacheprovider -p sanitized_only \
    -o pythonpath="$place $root" -o timeout=300 "$@" \
    tests/protocol/test_batch*.py tests/protocol/test_xxh3.py
