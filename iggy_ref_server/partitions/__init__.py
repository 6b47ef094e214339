"""Partitions: append, poll, stored offsets, deduplication and retention of messages."""
