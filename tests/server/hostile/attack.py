"""The process that attacks: reads its orders from standard input, and tells what it has thrown.

Orders are lines of JSON, one for each transport in turn; so are the answers.
"""

from __future__ import annotations

import json
import random
import sys
import time

from tests.server.hostile import attack_http, attack_quic, attack_tcp, attack_websocket
from tests.server.hostile.attacker import Attacker, Target, throw

WAVES = {
    "tcp": attack_tcp.WAVES,
    "tls": attack_tcp.TLS_WAVES,
    "ws": attack_websocket.WAVES,
    "quic": attack_quic.WAVES,
    "http": attack_http.WAVES,
}


def obey(line: str) -> str:
    """Carry out one order."""
    order = json.loads(line)
    users = tuple((name, password) for name, password in order["users"])
    host, port = order["address"]
    target = Target(order["transport"], (host, port), users, order["readable"])
    attacker = Attacker(target, random.Random(order["seed"]))
    attacker.until = time.monotonic() + order["seconds"]
    began = time.monotonic()
    throw(attacker, WAVES[target.transport], order["frames"])
    seconds = round(time.monotonic() - began, 1)
    return json.dumps(
        {"transport": target.transport, "seconds": seconds, "thrown": attacker.thrown}
    )


if __name__ == "__main__":
    for order in sys.stdin:
        sys.stdout.write(obey(order) + "\n")
        sys.stdout.flush()
