"""The REST face of the server: from HTTP to commands and back.

A request becomes the same command that the binary doors read, is served by the same handlers, and
what they answer becomes JSON. Routes, shapes and statuses come from ``iggy_protocol.rest``; sockets
are the listeners' affair.
"""
