"""What exists on the server: streams, topics, partitions, groups, users and tokens.

    plan_*      a command and the present state give a change, or the fault the client is told
    store       logs the change, syncs it, applies it, calls the listeners
    state       the immutable result, with look-ups by id and by name
    views       the same as replies
    importer    imports the state log of Apache Iggy 0.8

Messages, stored offsets and group membership live elsewhere.
"""
