"""The frozen values of commands and replies.

Their layouts are in ``commands``, their rules in ``validation``.
"""
