"""A server for the clients of Apache Iggy 0.7 to 0.10, written in Python on trio.

    iggy-server            python -m iggy_ref_server

A supervisor runs one process per CPU core, a shard. Each shard accepts connections, owns a part of
all partitions and forwards requests for the others; shard 0 writes the metadata. The server reads
and writes the wire protocol with ``iggy_protocol`` and never imports the SDK. The package has no
public Python names: it is used through its command line.
"""

from __future__ import annotations

__all__: list[str] = []
