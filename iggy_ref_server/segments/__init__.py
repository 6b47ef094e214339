"""Segments: the pair of files, log and index, that holds a stretch of one partition."""

from __future__ import annotations
