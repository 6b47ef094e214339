#!/usr/bin/env bash
# Build the ring with the address and undefined-behaviour sanitizers and run its tests on it.
#
# usage: tests/server/sanitize_uring.sh PYTHON [pytest arguments]
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
cp -r iggy_ref_server "$place/"
rm -f "$place"/iggy_ref_server/*.so

setting() { "$python" -c "import sysconfig; print(sysconfig.$1)"; }
library="$place/iggy_ref_server/_uring.abi3.so"
gcc -std=c11 -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all \
    -Wall -Wextra -Wconversion -Wshadow -Wstrict-prototypes -Werror -DIGGY_URING_FAULTS -shared -fPIC \
    -isystem "$(setting 'get_path("include")')" iggy_ref_server/_uring.c -o "$library"

# Loaded by pytest: refuses to pass when another extension, or none, was under test.
cat > "$place/sanitized_only.py" <<'PLUGIN'
import os
import sys
from pathlib import Path


def pytest_sessionfinish(session):
    loaded = getattr(sys.modules.get("iggy_ref_server._uring"), "__file__", None)
    if loaded != os.environ["SANITIZED_LIBRARY"]:
        session.exitstatus = 1
        print(f"\nnot sanitized: the tests used {loaded}")
    elif "libasan" not in Path("/proc/self/maps").read_text():
        session.exitstatus = 1
        print("\nnot sanitized: the address sanitizer is not in this process")
    else:
        print(f"\nsanitized: {loaded}")
PLUGIN

# Python frees nothing of its own at exit, so leaks are watched by tests instead.
env -u PYTHONPATH \
    LD_PRELOAD="$(gcc -print-file-name=libasan.so)" \
    ASAN_OPTIONS=detect_leaks=0:abort_on_error=1:allocator_may_return_null=1 \
    UBSAN_OPTIONS=print_stacktrace=1 \
    PYTHONMALLOC=malloc PYTHONDONTWRITEBYTECODE=1 SANITIZED_LIBRARY="$library" \
    "$python" -m pytest -q --capture=sys -p no:cacheprovider -p sanitized_only \
    -o pythonpath="$place $root/protocol $root" -o timeout=300 "$@" \
    tests/server/storage/test_ring*.py tests/server/storage/test_uring*.py
