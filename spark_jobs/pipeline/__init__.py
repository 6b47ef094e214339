"""Pipelines: one TOML file names a source, transforms, sinks, and a place for dead letters.

``document`` reads a file and knows its lines, ``specification`` makes typed values of it, the other
modules do what these say. Spark is not loaded before a file has been understood.
"""

from __future__ import annotations
