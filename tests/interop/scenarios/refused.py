"""What the official client of another protocol says when it is refused.

Run with an interpreter that has the wheel: ``refused.py CONNECTION_STRING...``, each with the login
in it. Prints one JSON object: what ``connect`` raised for each, or an empty text.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys

from apache_iggy import IggyClient  # type: ignore[import-not-found]

# A client that hangs is what this is about, so each gets its time.
SECONDS_MAX = 15


async def refused(url):
    try:
        await asyncio.wait_for(IggyClient.from_connection_string(url).connect(), SECONDS_MAX)
    except TimeoutError:
        return "it hangs"
    except Exception as error:
        return str(error) or type(error).__name__
    return ""


async def main(*urls):
    return {url.partition(":")[0]: await refused(url) for url in urls}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(main(*sys.argv[1:]))))
    sys.stdout.flush()
    # Threads of the client outlive the interpreter and abort it when it ends in good order.
    os._exit(0)
