"""The listeners: accept a connection, do its handshake, and hand it to the server of its kind."""
