"""Names of weight formats, and arrays of any library as the native extension takes them."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

Format: TypeAlias = Literal[
    "f32",
    "bf16",
    "fp8_block128",
    "fp8_channel",
    "mxfp8",
    "mxfp4",
    "int8",
    "int4",
    "int4_g32",
    "int4_g128",
    "q4_0",
    "q4_1",
    "q8_0",
    "q4_k",
    "q5_k",
    "q6_k",
]
Mode: TypeAlias = Literal["exact", "fast"]
Store: TypeAlias = Literal["int8", "int8_g32", "int4", "int4_g32"]
"""Integer formats that are made at load, with one scale a row or (g32) one for 32 columns."""
Array: TypeAlias = torch.Tensor | NDArray[np.generic]


def stored_name(store: Store | None) -> str | None:
    """The extension's name of a format that is made at load."""
    return "q8_0" if store == "int8_g32" else store


def bytes_of(weight: Array) -> NDArray[np.uint8]:
    """A matrix as bytes, without a copy if it is contiguous."""
    if isinstance(weight, torch.Tensor):
        flat = weight.detach().contiguous()
        # numpy has no bfloat16 or float8: any element type is passed on as its bytes.
        array: NDArray[np.uint8] = flat.reshape(-1).view(torch.uint8).numpy()
        return array
    return np.ascontiguousarray(weight).reshape(-1).view(np.uint8)


def scale_of(fmt: Format, scale: Array | None) -> NDArray[np.generic] | None:
    """Scales as the extension wants them: float32, or the bits of bfloat16, float16 (uint16) and E8M0 (uint8).

    Raises:
        ValueError: A tensor's type is not the one whose bits the format holds; they would be read as other numbers.
    """
    if scale is None:
        return None
    if isinstance(scale, torch.Tensor):
        flat = scale.detach().contiguous()
        wanted = {"int4_g32": torch.bfloat16, "int4_g128": torch.float16}.get(fmt)
        if wanted is not None:
            if flat.dtype not in {wanted, torch.uint16}:
                raise ValueError(f"scales of {fmt} must be {wanted}, not {flat.dtype}")
            return flat.view(torch.int16).numpy().view(np.uint16)
        if fmt in {"mxfp4", "mxfp8"}:
            return flat.view(torch.uint8).numpy()
        return flat.float().numpy()
    array = np.ascontiguousarray(scale)
    if array.dtype == np.float16 and fmt != "int4_g128":
        raise ValueError(f"scales of {fmt} cannot be float16")
    if array.dtype.itemsize == 2:
        return array.view(np.uint16)
    return array if array.dtype == np.uint8 else array.astype(np.float32, copy=False)
