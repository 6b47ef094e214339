"""Listeners, connections and the request scheduler: from a client's bytes to a request and back."""
