"""Segments: the log and index files of a partition, their recovery and verification."""

from __future__ import annotations
