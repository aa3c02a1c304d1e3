# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""The frameworks in one process: equal threads, one buffer for all, one allocator policy."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import types
from typing import Any

import numpy as np
import tensorflow as tf


def set_threads(threads: int) -> None:
    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(threads)
    if torch is not None:
        torch.set_num_threads(threads)
        torch.set_num_interop_threads(threads)


def _optional(name: str) -> types.ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


torch: Any = _optional("torch")
jax: Any = _optional("jax")


def versions() -> dict[str, str]:
    modules = {"tensorflow": tf, "numpy": np, "pytorch": torch, "jax": jax}
    return {name: module.__version__ for name, module in modules.items() if module is not None}


@dataclasses.dataclass(frozen=True)
class Shared:
    """One buffer as each framework's tensor."""

    tf: Any
    np: np.ndarray

    @functools.cached_property
    def torch(self) -> Any:
        return self._same_buffer(torch.from_dlpack(self.tf), "data_ptr")

    @functools.cached_property
    def jax(self) -> Any:
        return self._same_buffer(jax.dlpack.from_dlpack(self.tf), "unsafe_buffer_pointer")

    def _same_buffer(self, tensor: Any, address: str) -> Any:
        if self.np.size and getattr(tensor, address)() != self.np.ctypes.data:
            raise RuntimeError(f"{type(tensor).__module__} has a copy of the buffer")
        return tensor


def share(array: np.ndarray) -> Shared:
    tensor = tf.constant(array)
    return Shared(tensor, tensor._numpy())  # numpy() would copy.


def to_numpy(result: Any) -> Any:
    """A framework's result as an array, or as a list of them, without copying where it can."""
    if isinstance(result, (list, tuple)):
        return [to_numpy(part) for part in result]
    if isinstance(result, tf.Tensor):
        return result.numpy()
    if torch is not None and isinstance(result, torch.Tensor):
        if result.dtype == torch.bfloat16:
            return result.view(torch.int16).numpy().view(tf.bfloat16.as_numpy_dtype)
        return result.numpy()
    return np.asarray(result)
