"""One tensor of a checkpoint: its raw bytes, mapped, and what the header says of them."""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from engine.errors import CheckpointError
from engine.weights.formats import Bytes


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor as it lies in its file.

    Attributes:
        name: Its name in the file.
        file: The file.
        dtype: The name of its type in the file's own words.
        shape: Slowest dimension first.
        begin: Its first byte in the file.
        end: The byte after its last.
    """

    name: str
    file: MappedFile
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int

    @property
    def path(self) -> Path:
        """The file's path."""
        return self.file.path

    @property
    def raw(self) -> Bytes:
        """A read-only view of its bytes; nothing is read before it is touched."""
        return self.file.data[self.begin : self.end]

    def fetch(self) -> None:
        """Ask the system to read its bytes from the file; returns before they are there."""
        first = self.begin // mmap.PAGESIZE * mmap.PAGESIZE
        if self.end > first:
            self.file.mapping.madvise(mmap.MADV_WILLNEED, first, self.end - first)

    def forget(self) -> None:
        """Let go of the memory that its bytes took; they are read from the file again if they are touched again.

        What the kernels have packed would otherwise count twice until the system runs short of memory.
        """
        first, last = (
            -(-self.begin // mmap.PAGESIZE) * mmap.PAGESIZE,
            self.end // mmap.PAGESIZE * mmap.PAGESIZE,
        )
        if last > first:
            self.file.mapping.madvise(mmap.MADV_DONTNEED, first, last - first)


class MappedFile:
    """A file mapped into memory, read-only."""

    def __init__(self, path: Path) -> None:
        """Map a file.

        Raises:
            CheckpointError: It is missing, empty, or cannot be opened.
        """
        self.path = path
        if path.exists() and not path.is_file():  # opening a pipe would wait for its writer
            raise CheckpointError(f"{path} is not a file: download it again")
        try:
            with path.open("rb") as file:
                self.mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except FileNotFoundError:
            raise CheckpointError(f"{path} is missing: download it again") from None
        except ValueError:  # an empty file cannot be mapped
            raise CheckpointError(f"{path} is empty; it is cut short: download it again") from None
        except OSError as error:
            raise CheckpointError(f"{path} cannot be read ({error.strerror or error})") from None
        self.data: Bytes = np.frombuffer(self.mapping, dtype=np.uint8)

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self.data.size
