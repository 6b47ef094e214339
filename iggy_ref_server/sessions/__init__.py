"""The sessions of clients from 0.9 on, on shard 0: who has one, and which replies it may repeat.

Owns the table of sessions, their ends, and the receipts of metadata requests. Knows no connections,
no commands and no clock: the time is an argument.
"""
