"""The REST API of the server: from HTTP to commands and back.

A request becomes the same command that the binary transports carry, the same handlers serve it, and
their reply becomes JSON. Routes, shapes and statuses come from ``iggy_protocol.rest``.
"""
