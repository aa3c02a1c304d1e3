# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""A mixture of experts with a capacity, compiled by XLA, beside its run without.

Each expert has room for so many tokens of a batch. A token that is routed to a full expert passes
it by. `parallel_dynamic_stitch` with `size=` puts the tokens into the experts' slots, and `gather`
takes the answers out again; both take a token without a slot at an index outside and ignore it.
All shapes are known, so XLA compiles a training step once, for whatever way the tokens go.

    python examples/compiled_experts.py
    python examples/compiled_experts.py --experts 8 --steps 500
"""

import argparse
import os
import statistics
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # Before the import, which reads it.

import gather_stitch as gs
import numpy as np
import tensorflow as tf

STEPS = 200
EXPERTS = 8
TOKENS = 256
UNITS = 32
# More than the tokens an expert gets where all get as many.
CAPACITY_FACTOR = 1.25
LEARNING_RATE = 0.1
BALANCE_WEIGHT = 0.02

# The two runs sum in different orders; each step lets the difference grow.
ROUNDING = 1e-3


def make_task(experts, seed):
    """Gives a function of a step that makes tokens of several kinds, each with a map of its own."""
    kinds = np.random.default_rng(seed)
    centres = 2 * kinds.standard_normal((experts, UNITS))
    maps = kinds.standard_normal((experts, UNITS, UNITS)) / np.sqrt(UNITS)

    def make_batch(step):
        random = np.random.default_rng([seed, step])
        kind = random.integers(0, experts, TOKENS)
        tokens = centres[kind] + random.standard_normal((TOKENS, UNITS))
        targets = np.einsum("tu,tuv->tv", tokens, maps[kind])
        return tf.constant(tokens, tf.float32), tf.constant(targets, tf.float32)

    return make_batch


def make_variables(experts, seed):
    random = np.random.default_rng(seed)
    scale = 1 / np.sqrt(UNITS)
    return {
        "router": tf.Variable(random.normal(0, scale, (UNITS, experts)), dtype=tf.float32),
        "experts": tf.Variable(random.normal(0, scale, (experts, UNITS, UNITS)), dtype=tf.float32),
    }


def slots_of(chosen, experts, capacity):
    """Gives each token's slot of experts * capacity, or -1 where its expert is full."""
    is_chosen = tf.one_hot(chosen, experts, dtype=tf.int32)
    # How many tokens before this one have the same expert.
    place = tf.reduce_sum((tf.cumsum(is_chosen) - is_chosen) * is_chosen, axis=1)
    return tf.where(place < capacity, chosen * capacity + place, -1)


def mixture_of_experts(variables, tokens):
    """Gives each token its expert's answer, and a loss that is least where all have equal work."""
    experts = variables["experts"].shape[0]
    capacity = int(CAPACITY_FACTOR * tokens.shape[0] / experts)
    gates = tf.nn.softmax(tokens @ variables["router"])
    chosen = tf.argmax(gates, axis=1, output_type=tf.int32)

    slots = slots_of(chosen, experts, capacity)
    inputs = gs.parallel_dynamic_stitch(
        [slots], [tokens], size=experts * capacity, bad_indices_policy="IGNORE"
    )
    inputs = tf.reshape(inputs, [experts, capacity, -1])
    outputs = tf.reshape(inputs @ variables["experts"], [experts * capacity, -1])
    answers = gs.gather(outputs, slots, bad_indices_policy="IGNORE")

    # The choice has no gradient: the router learns through the factor that it puts on the answer.
    factors = gs.gather(gates, chosen, batch_dims=1)
    shares = tf.reduce_mean(tf.one_hot(chosen, experts), axis=0)
    balance = experts * tf.reduce_sum(shares * tf.reduce_mean(gates, axis=0))
    return factors[:, tf.newaxis] * answers, balance


def make_step(experts, seed):
    """Gives a training step, which returns its loss, and its variables."""
    variables = make_variables(experts, seed)
    flat_variables = list(variables.values())

    def step(tokens, targets):
        with tf.GradientTape() as tape:
            answers, balance = mixture_of_experts(variables, tokens)
            loss = tf.reduce_mean((answers - targets) ** 2) + BALANCE_WEIGHT * balance
        gradients = tape.gradient(loss, flat_variables)
        for variable, gradient in zip(flat_variables, gradients, strict=True):
            variable.assign_sub(LEARNING_RATE * gradient)
        return loss

    return step, flat_variables


def run(steps, experts, seed=0):
    """Trains eagerly and compiled, and gives the losses of both, milliseconds, and programs."""
    make_batch = make_task(experts, seed)
    eager_step, eager_variables = make_step(experts, seed)
    step, compiled_variables = make_step(experts, seed)
    compiled_step = tf.function(step, jit_compile=True)
    losses, milliseconds = ([], []), ([], [])
    for i in range(steps):
        batch = make_batch(i)
        for side, function in enumerate((eager_step, compiled_step)):
            start = time.perf_counter()
            losses[side].append(float(function(*batch)))
            milliseconds[side].append(1e3 * (time.perf_counter() - start))
    differences = [abs(a - b) / max(1, abs(a)) for a, b in zip(*losses, strict=True)]
    differences += [
        float(tf.reduce_max(tf.abs(a - b)))
        for a, b in zip(eager_variables, compiled_variables, strict=True)
    ]
    # The first steps trace and compile.
    medians = [statistics.median(times[min(5, steps - 1) :]) for times in milliseconds]
    return losses, max(differences), medians, compiled_step.experimental_get_tracing_count()


def main():
    parser = argparse.ArgumentParser(
        description="A mixture of experts with a capacity, compiled by XLA, beside its run without."
    )
    parser.add_argument("--steps", type=int, default=STEPS, help="default: %(default)s")
    parser.add_argument("--experts", type=int, default=EXPERTS, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    arguments = parser.parse_args()

    losses, difference, medians, traces = run(arguments.steps, arguments.experts, arguments.seed)
    print(f"    {'':<12}{'first loss':>12}{'last loss':>12}{'ms a step':>12}")
    for name, side, median in zip(("eager", "compiled"), losses, medians, strict=True):
        print(f"    {name:<12}{side[0]:>12.5f}{side[-1]:>12.5f}{median:>12.2f}")
    print(f"    largest difference {difference:.2g}, {traces} compiled program")
    if not difference <= ROUNDING or not losses[1][-1] < losses[1][0] or traces != 1:
        print("    the compiled run differs from the eager one, or did not learn")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
