"""Files where Spark's are: local folders, HDFS, S3 and whatever else Hadoop can reach."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

TEXT_BYTES_MAX: Final = 64 << 20
"""The longest text that is read at once: a list of the files of one micro-batch."""


@dataclass(frozen=True)
class FoundFile:
    """A file in a folder.

    Attributes:
        path: its path, relative to the folder.
        name: its name alone.
    """

    path: str
    name: str


class HadoopFolder:
    """A folder, addressed by relative paths.

    Args:
        spark: the session, whose settings hold what is needed to reach the folder.
        path: any path or URL that Spark takes.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        jvm: Any = spark._jvm
        self._path_class = jvm.org.apache.hadoop.fs.Path
        self._jvm = jvm
        self._root = self._path_class(path)
        configuration = spark._jsparkSession.sessionState().newHadoopConf()
        self._files = self._root.getFileSystem(configuration)
        self._root = self._files.makeQualified(self._root)

    def at(self, relative: str) -> str:
        """Return the whole path of a file, for Spark."""
        return str(self._path(relative).toString())

    def exists(self, relative: str) -> bool:
        """Tell whether there is a file or folder."""
        return bool(self._files.exists(self._path(relative)))

    def delete(self, relative: str) -> None:
        """Delete a file or folder with all that is in it, if there is one."""
        self._files.delete(self._path(relative), True)

    def names(self, relative: str) -> list[str]:
        """Return the names in a folder; none if it does not exist."""
        path = self._path(relative)
        if not self._files.exists(path):
            return []
        return sorted(str(one.getPath().getName()) for one in self._files.listStatus(path))

    def files(self, relative: str) -> Iterator[FoundFile]:
        """Walk through the files of a folder and of those in it."""
        root = self._files.makeQualified(self._path(relative)).toString().rstrip("/")
        found = self._files.listFiles(self._path(relative), True)
        while found.hasNext():
            path = found.next().getPath()
            yield FoundFile(str(path.toString())[len(root) + 1 :], str(path.getName()))

    def move(self, source: str, target: str) -> None:
        """Move a file, also when an earlier move of it was interrupted.

        Raises:
            OSError: the file system refuses.
        """
        old, new = self._path(source), self._path(target)
        if not self._files.exists(old):
            if not self._files.exists(new):
                raise OSError(f"{source} is gone, and {target} is not there")
            return
        self._files.mkdirs(new.getParent())
        # Object stores copy first and delete then; a copy that is there may be incomplete.
        self._files.delete(new, False)
        if not self._files.rename(old, new):
            raise OSError(f"{source} cannot be moved to {target}")

    def read_text(self, relative: str) -> str | None:
        """Read a small file; None if there is none."""
        path = self._path(relative)
        if not self._files.exists(path):
            return None
        size = self._files.getFileStatus(path).getLen()
        if size > TEXT_BYTES_MAX:
            raise OSError(f"{relative} has {size:,} bytes; it was not written by a pipeline")
        stream = self._files.open(path)
        try:
            content = self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream)
        finally:
            stream.close()
        return bytes(content).decode()

    def write_text(self, relative: str, text: str) -> None:
        """Write a small file; others see all of it or nothing."""
        path, partial = self._path(relative), self._path(f"{relative}.tmp")
        stream = self._files.create(partial, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        self._files.delete(path, False)
        if not self._files.rename(partial, path):
            raise OSError(f"{relative} cannot be written")

    def _path(self, relative: str) -> Any:
        return self._path_class(self._root, relative) if relative else self._root
