# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""`Embedding`: the layer of Keras 3, which reads the rows that it needs and not the table.

    >>> import keras
    >>> import gather_stitch.keras
    >>> model = keras.Sequential([
    ...     gather_stitch.keras.Embedding(1000, 16),
    ...     keras.layers.GlobalAveragePooling1D(),
    ... ])
    >>> model(tf.constant([[1, 5, 5], [7, 0, 2]])).shape
    TensorShape([2, 16])

`import gather_stitch` does not import this module, nor Keras.
"""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf
from tensorflow.python.framework import ops
from tensorflow.python.ops import control_flow_util

from . import _arguments, _loader, gather_ops, stock_lowering

__all__ = ["Embedding"]

if keras.backend.backend() != "tensorflow":
    raise ImportError(
        f"gather_stitch.keras needs the TensorFlow backend of Keras, which runs on "
        f"{keras.backend.backend()}: set KERAS_BACKEND=tensorflow before Keras is imported"
    )


class Embedding(keras.layers.Embedding):  # type: ignore[misc]
    """`keras.layers.Embedding` that gathers from its variable without reading it whole.

    It has the arguments, weights, values, masks and gradients of `keras.layers.Embedding`, and
    takes its place in any model.

    A model is saved as if the layer were Keras's own: it loads wherever Keras is. Where
    `gather_stitch.keras` is imported it loads with this layer again; without it, with that of
    Keras. Weights go either way. To take a model of the other layer over:

        def convert(layer):
            is_stock = type(layer) is keras.layers.Embedding
            cls = gather_stitch.keras.Embedding if is_stock else type(layer)
            return cls.from_config(layer.get_config())

        converted = keras.models.clone_model(model, clone_function=convert)
        converted.set_weights(model.get_weights())

    A quantised layer and one with LoRA compute as in Keras, and so do SparseTensor inputs.

    >>> layer = gather_stitch.keras.Embedding(
    ...     3, 2, embeddings_initializer="ones", bad_indices_policy="IGNORE")
    >>> layer(tf.constant([0, -1])).numpy()
    array([[1., 1.],
           [0., 0.]], dtype=float32)

    Args:
      bad_indices_policy: What an id outside `[0, input_dim)` gives. `"DEFAULT"`: as in Keras, an id
        in `[-input_dim, 0)` counts from the end and any other is an error on a CPU. The other
        policies are those of `gather_stitch.gather`, for negative ids as well: `"IGNORE"` gives
        zeros and no gradient for padding such as -1. A layer with one of these is saved with it,
        and then loads only where `gather_stitch.keras` is imported.
      *args, **kwargs: As in `keras.layers.Embedding`, which defines the layer:
        https://keras.io/api/layers/core_layers/embedding/

    Raises:
      ValueError: An unknown `bad_indices_policy`; one other than `"DEFAULT"` in a call of a layer
        that is quantised or has LoRA, or with a SparseTensor.
    """

    # Keras writes this and the class's name into a saved model, and looks them up when it loads
    # one: a process that has not imported this module finds the layer of Keras.
    __module__ = "keras.layers"

    def __init__(self, *args: Any, bad_indices_policy: str = "DEFAULT", **kwargs: Any) -> None:
        if bad_indices_policy not in _arguments.GATHER_POLICIES:
            _arguments.refuse_choice(
                "bad_indices_policy", bad_indices_policy, _arguments.GATHER_POLICIES
            )
        self.bad_indices_policy = bad_indices_policy
        super().__init__(*args, **kwargs)

    def call(self, inputs: Any) -> Any:
        if self.lora_enabled or isinstance(inputs, tf.SparseTensor):
            self._refuse_policy("with LoRA" if self.lora_enabled else "for a SparseTensor")
            return super().call(inputs)
        inputs = keras.ops.convert_to_tensor(inputs)
        if inputs.dtype not in (tf.int32, tf.int64):
            inputs = keras.ops.cast(inputs, "int32")
        if isinstance(inputs, tf.RaggedTensor):
            outputs = inputs.with_flat_values(self._rows(inputs.flat_values))
        else:
            outputs = self._rows(inputs)
        return keras.ops.cast(outputs, self.compute_dtype)

    def quantize(self, mode: Any = None, type_check: bool = True, **kwargs: Any) -> None:
        # Keras refuses subclasses, which may compute something else. This one does not.
        super().quantize(mode, type_check=type_check and type(self) is not Embedding, **kwargs)

    def quantized_call(self, *args: Any, **kwargs: Any) -> Any:
        self._refuse_policy("in a quantised layer")
        return super().quantized_call(*args, **kwargs)

    def get_config(self) -> dict[str, Any]:
        config: dict[str, Any] = super().get_config()
        if self.bad_indices_policy != "DEFAULT":
            config["bad_indices_policy"] = self.bad_indices_policy
        return config

    def _rows(self, ids: Any) -> Any:
        if self.bad_indices_policy == "DEFAULT":
            ids = tf.where(ids < 0, ids + self.input_dim, ids)
        # XLA has the stock ops where our kernels for it were not built.
        if (
            self.bad_indices_policy != "ERROR"
            and control_flow_util.GraphOrParentsInXlaContext(ops.get_default_graph())
            and not _loader.has_xla_kernels()
        ):
            with stock_lowering.use_stock_ops():
                return self._gather(ids)
        return self._gather(ids)

    def _gather(self, ids: Any) -> Any:
        return gather_ops.gather(self._embeddings, ids, bad_indices_policy=self.bad_indices_policy)

    def _refuse_policy(self, where: str) -> None:
        if self.bad_indices_policy != "DEFAULT":
            raise ValueError(
                f"Keras computes an embedding {where}, which knows no bad_indices_policy: "
                f'{self.bad_indices_policy!r} is possible only without, else leave it at "DEFAULT"'
            )


# What this layer has saved, and configurations that name no module (HDF5), load as this layer.
keras.saving.get_custom_objects().setdefault(Embedding.__name__, Embedding)
