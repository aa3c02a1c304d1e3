# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""A mixture of experts on scikit-learn's digits, on stock ops and on ours.

A router sends each picture of a digit to one of several small networks, the experts. The rows of
a batch are split by `dynamic_partition`, each expert works on its own, and
`parallel_dynamic_stitch` puts the answers back in the order of the batch.

    python examples/mixture_of_experts.py
    python examples/mixture_of_experts.py --experts 8 --steps 500 --plot curves.png
    python examples/mixture_of_experts.py --save build/models

The last one writes the trained models, one of ours and one of stock ops, for examples/cc/serve.cc.
"""

import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # Before the import, which reads it.

import numpy as np
import side_by_side
import sklearn.datasets
import tensorflow as tf

STEPS = 400
EXPERTS = 4
HIDDEN_UNITS = 64
EXPERT_UNITS = 64
BATCH_ROWS = 128
HELD_OUT_ROWS = 360
LEARNING_RATE = 0.1
BALANCE_WEIGHT = 0.02


def load_digits():
    """Gives pictures [1797, 64] between 0 and 1, and their digits; the last ones are held out."""
    digits = sklearn.datasets.load_digits()
    # As they come the last pictures are by other hands than the first.
    order = np.random.default_rng(0).permutation(len(digits.target))
    return (digits.data[order] / 16).astype(np.float32), digits.target[order].astype(np.int32)


def make_variables(experts, seed):
    random = np.random.default_rng(seed)

    def kernel(rows, columns):
        values = random.normal(0, np.sqrt(2 / rows), [rows, columns])
        return tf.Variable(values.astype(np.float32))

    return {
        "in": kernel(64, HIDDEN_UNITS),
        "router": kernel(HIDDEN_UNITS, experts),
        "up": [kernel(HIDDEN_UNITS, EXPERT_UNITS) for _ in range(experts)],
        "down": [kernel(EXPERT_UNITS, HIDDEN_UNITS) for _ in range(experts)],
        "out": kernel(HIDDEN_UNITS, 10),
    }


def mixture_of_experts(ops, variables, tokens):
    """Gives each row its expert's answer, and a loss that is least where all have equal work."""
    experts = len(variables["up"])
    gates = tf.nn.softmax(tokens @ variables["router"])
    chosen = tf.argmax(gates, axis=1, output_type=tf.int32)

    # Rows and their places take the same way, so that each answer finds back.
    places = tf.dynamic_partition(tf.range(tf.shape(tokens)[0]), chosen, experts)
    inputs = tf.dynamic_partition(tokens, chosen, experts)
    outputs = [
        tf.nn.relu(rows @ up) @ down
        for rows, up, down in zip(inputs, variables["up"], variables["down"], strict=True)
    ]
    merged = ops.parallel_dynamic_stitch(places, outputs)

    # The choice has no gradient: the router learns through the factor that it puts on the answer.
    factors = ops.gather(gates, chosen, batch_dims=1)
    shares = tf.reduce_mean(tf.one_hot(chosen, experts), axis=0)
    balance = experts * tf.reduce_sum(shares * tf.reduce_mean(gates, axis=0))
    return factors[:, tf.newaxis] * merged, balance


def model(ops, variables, pictures):
    """Gives the logits [rows, 10] and the balance loss."""
    hidden = tf.nn.relu(pictures @ variables["in"])
    answers, balance = mixture_of_experts(ops, variables, hidden)
    return (hidden + answers) @ variables["out"], balance


def make_training(ops, seed, experts):
    pictures, digits = (tf.constant(array) for array in load_digits())
    variables = make_variables(experts, seed)
    flat_variables = tf.nest.flatten(variables)
    held_out_rows = tf.range(len(digits) - HELD_OUT_ROWS, len(digits))

    @tf.function
    def step(batch):
        with tf.GradientTape() as tape:
            logits, balance = model(ops, variables, ops.gather(pictures, batch))
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels=ops.gather(digits, batch), logits=logits
            )
            loss = tf.reduce_mean(losses) + BALANCE_WEIGHT * balance
        gradients = tape.gradient(loss, flat_variables)
        for variable, gradient in zip(flat_variables, gradients, strict=True):
            variable.assign_sub(LEARNING_RATE * gradient)
        return loss

    @tf.function
    def accuracy():
        logits, _ = model(ops, variables, ops.gather(pictures, held_out_rows))
        guesses = tf.argmax(logits, axis=1, output_type=tf.int32)
        right = tf.equal(guesses, ops.gather(digits, held_out_rows))
        return tf.reduce_mean(tf.cast(right, tf.float32))

    return side_by_side.Training(step, accuracy, flat_variables)


def save(ops, variables, folder):
    """Writes a SavedModel whose signature maps `pictures` to `digits` and `probabilities`."""

    @tf.function(input_signature=[tf.TensorSpec([None, 64], tf.float32, "pictures")])
    def recognize(pictures):
        logits, _ = model(ops, variables, pictures)
        return {
            "digits": tf.argmax(logits, axis=1, output_type=tf.int32),
            "probabilities": tf.nn.softmax(logits),
        }

    module = tf.Module()
    module.variables_of_model = variables
    module.recognize = recognize
    tf.saved_model.save(module, str(folder), signatures=recognize)


def make_batches(steps, seed):
    """Gives `steps` batches of training rows, in an order that depends on the seed alone."""
    random = np.random.default_rng(seed)
    train_rows = len(load_digits()[1]) - HELD_OUT_ROWS
    epochs = -(-steps * BATCH_ROWS // train_rows)
    order = np.concatenate([random.permutation(train_rows) for _ in range(epochs)])
    batches = order[: steps * BATCH_ROWS].astype(np.int32).reshape(steps, BATCH_ROWS)
    return [(tf.constant(batch),) for batch in batches]


def run(steps=STEPS, seed=0, experts=EXPERTS, save_to=None):
    trainings = {}

    def make(ops, seed):
        trainings[ops.name] = ops, make_training(ops, seed, experts)
        return trainings[ops.name][1]

    print(
        f"    8x8 pictures of digits, {experts} experts, batches of {BATCH_ROWS},"
        f" {HELD_OUT_ROWS} pictures held out"
    )
    comparison = side_by_side.train(
        "Mixture of experts", make, make_batches(steps, seed), seed=seed
    )
    if save_to is not None:
        structure = make_variables(experts, seed)
        for name, (ops, training) in trainings.items():
            variables = tf.nest.pack_sequence_as(structure, training.variables)
            save(ops, variables, Path(save_to) / name)
    return comparison


def main():
    parser = side_by_side.argument_parser(
        "A mixture of experts on scikit-learn's digits, on stock ops and on ours.", steps=STEPS
    )
    parser.add_argument(
        "--experts", type=side_by_side.positive, default=EXPERTS, help="default: %(default)s"
    )
    parser.add_argument(
        "--save", type=Path, metavar="FOLDER", help="write the models, FOLDER/ours and FOLDER/stock"
    )
    arguments = parser.parse_args()
    comparison = run(arguments.steps, arguments.seed, arguments.experts, arguments.save)
    return side_by_side.finish(comparison, arguments.plot)


if __name__ == "__main__":
    sys.exit(main())
