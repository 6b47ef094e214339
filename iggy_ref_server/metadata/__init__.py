"""What exists on the server: streams, topics, partitions, groups, users and tokens.

    plan_*      a command and the present state give a change, or the fault the client is told
    store       logs the change, brings it to the disk, applies it, tells the listeners
    state       the immutable result, with look-ups by id and by name
    views       the same as replies
    importer    takes over what a real server left behind

Messages, stored offsets and group membership live elsewhere.
"""
