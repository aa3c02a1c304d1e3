# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""A graph convolution on Zachary's karate club, on stock ops and on ours.

A club of 34 members split into two after a quarrel. From the friendships, and from the side of
the two leaders alone, a network of two graph convolutions tells which side each of the other 32
members took. A message along an edge is the row of its source: a gather.

    python examples/karate_club.py
    python examples/karate_club.py --steps 100 --plot curves.png
"""

import os
import sys
from typing import NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # Before the import, which reads it.

import networkx
import numpy as np
import side_by_side
import tensorflow as tf

STEPS = 200
HIDDEN_UNITS = 16
LEARNING_RATE = 0.2


class Graph(NamedTuple):
    """Directed edges, each friendship in both directions and each member with itself."""

    sources: tf.Tensor  # int32 [edges]
    targets: tf.Tensor  # int32 [edges]
    weights: tf.Tensor  # float32 [edges, 1]: 1 / sqrt(degree of source * degree of target)
    members: int


def load_karate_club() -> tuple[Graph, np.ndarray]:
    """Gives the graph and the side, 0 or 1, that each member took."""
    club = networkx.karate_club_graph()
    sides = np.array([club.nodes[member]["club"] == "Officer" for member in club], np.int32)
    links = np.array(list(club.edges) + [(member, member) for member in club])
    both_ways = np.unique(np.concatenate([links, links[:, ::-1]]), axis=0)
    sources, targets = both_ways.T.astype(np.int32)
    degrees = np.bincount(targets).astype(np.float32)
    weights = 1 / np.sqrt(degrees[sources] * degrees[targets])
    graph = Graph(
        tf.constant(sources), tf.constant(targets), tf.constant(weights[:, np.newaxis]), len(club)
    )
    return graph, sides


def graph_convolution(ops, node_features, graph):
    """Every node gets the weighted sum of its neighbours' features."""
    messages = graph.weights * ops.gather(node_features, graph.sources)
    return tf.math.unsorted_segment_sum(messages, graph.targets, graph.members)


def model(ops, variables, graph):
    """Gives the logits [members, 2]."""
    embedding, kernel = variables
    # The members are told apart by nothing but their place in the graph: their features are the
    # identity matrix, so that the first kernel is itself the product of the two.
    hidden = tf.nn.relu(graph_convolution(ops, embedding, graph))
    return graph_convolution(ops, hidden @ kernel, graph)


def make_training(ops, seed):
    graph, sides = load_karate_club()
    leaders = tf.constant([0, graph.members - 1])  # The instructor and the president.
    others = tf.constant(np.arange(1, graph.members - 1))
    sides = tf.constant(sides)

    random = np.random.default_rng(seed)
    variables = [
        tf.Variable(random.normal(0, 0.3, [graph.members, HIDDEN_UNITS]).astype(np.float32)),
        tf.Variable(random.normal(0, 0.3, [HIDDEN_UNITS, 2]).astype(np.float32)),
    ]

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            logits = model(ops, variables, graph)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
                labels=ops.gather(sides, leaders), logits=ops.gather(logits, leaders)
            )
            loss = tf.reduce_mean(losses)
        gradients = tape.gradient(loss, variables)
        for variable, gradient in zip(variables, gradients, strict=True):
            # What is gathered from a variable gives back rows, IndexedSlices, not a whole table.
            variable.assign_sub(LEARNING_RATE * tf.convert_to_tensor(gradient))
        return loss

    @tf.function
    def accuracy():
        guesses = tf.argmax(model(ops, variables, graph), axis=1, output_type=tf.int32)
        right = tf.equal(ops.gather(guesses, others), ops.gather(sides, others))
        return tf.reduce_mean(tf.cast(right, tf.float32))

    return side_by_side.Training(step, accuracy, variables)


def run(steps=STEPS, seed=0):
    graph, _ = load_karate_club()
    print(
        f"    {graph.members} members, {len(graph.sources)} messages a convolution,"
        " 2 members labelled, 32 held out"
    )
    # The whole graph is the batch: a step takes no argument.
    return side_by_side.train("Karate club", make_training, [()] * steps, seed=seed)


def main():
    parser = side_by_side.argument_parser(
        "A graph convolution on Zachary's karate club, on stock ops and on ours.", steps=STEPS
    )
    arguments = parser.parse_args()
    return side_by_side.finish(run(arguments.steps, arguments.seed), arguments.plot)


if __name__ == "__main__":
    sys.exit(main())
