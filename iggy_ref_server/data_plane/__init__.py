"""The room that serves connections: bytes in, staged appends, owed answers, bytes out."""
