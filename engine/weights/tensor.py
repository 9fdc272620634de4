"""One tensor of a checkpoint: its raw bytes, mapped, and what the header says of them."""

from __future__ import annotations

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
        path: The file.
        dtype: The name of its type in the file's own words.
        shape: Slowest dimension first.
        raw: A read-only view of its bytes; nothing is read before it is touched.
    """

    name: str
    path: Path
    dtype: str
    shape: tuple[int, ...]
    raw: Bytes


def map_file(path: Path) -> Bytes:
    """Map a file read-only.

    Raises:
        CheckpointError: The file cannot be opened.
    """
    try:
        if path.stat().st_size == 0:
            raise CheckpointError(f"{path} is empty; it is cut short: download it again")
        return np.memmap(path, dtype=np.uint8, mode="r").view(np.ndarray)
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing: download it again") from None
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read ({error.strerror or error})") from None
