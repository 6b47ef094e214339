"""The doors: accept a connection, wrap it, hand it to the data plane; nothing more."""
