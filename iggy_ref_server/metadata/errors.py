"""Errors that stop the server because its metadata cannot be read, with advice for operators."""

from __future__ import annotations


class MetadataError(Exception):
    """The metadata cannot be used as it is; the text says why and what to do.

    Attributes:
        path: the file that is to blame, relative to the data directory.
        position: where in it, in bytes.
        reason: what is wrong there.
    """

    advice = "restore the file from a backup"

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(f"{path} at byte {position}: {reason}; {self.advice}")
        self.path = path
        self.position = position
        self.reason = reason


class MetadataDamaged(MetadataError):
    """Bytes in the middle of a file are wrong, so what comes after them cannot be trusted."""

    advice = (
        "nothing was changed. `iggy-server check` lists the damage, `iggy-server repair` keeps a"
        " copy and saves what can still be read; a backup may hold more"
    )


class MetadataKeyMismatch(MetadataError):
    """The file is encrypted, and the configured key does not match."""

    advice = (
        "set `system.encryption.enabled` and `system.encryption.key` to the values that the file"
        " was written with"
    )


class MetadataMissing(MetadataError):
    """There are message files, and no metadata that describe them."""

    advice = (
        "nothing was changed. Restore the directory `state` from a backup. Where there is none,"
        " `iggy-server repair` moves the data to quarantine, and the next start begins as new"
    )

    def __init__(self, streams_path: str, files_count: int) -> None:
        files = "1 file" if files_count == 1 else f"{files_count} files"
        reason = f"the metadata are missing or empty, but {streams_path} holds {files} of streams"
        super().__init__("state/metadata.log", 0, reason)
