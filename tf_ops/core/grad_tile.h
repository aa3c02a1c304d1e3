// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// A part of a gradient, summed by one thread.

#ifndef GATHER_STITCH_CORE_GRAD_TILE_H_
#define GATHER_STITCH_CORE_GRAD_TILE_H_

#include <cstdint>

#include "tf_ops/core/floating_point_mode.h"
#include "tf_ops/core/gather_geometry.h"
#include "tf_ops/core/sum_rows.h"

namespace gather_stitch {

// The accumulators that a thread adds into at a time where it has the choice:
// half of an L2 cache.
inline constexpr int64_t kTileBytes = 256 * 1024;

// Accumulators that fit the L1 cache, with room for what streams by.
inline constexpr int64_t kNearBytes = 32 * 1024;

// What all threads share. Lines are the pairs (batch, outer): each has a table
// of its own to sum into. Nothing is empty.
struct GradJob {
  const GatherGeometry& geometry;
  const SumFunctions& sum;
  const char* grad;
  char* params_grad;
  FloatingPointMode mode;

  int64_t lines() const { return geometry.batches * geometry.outer; }
  int64_t all_indices() const {
    return geometry.batches * geometry.indices_per_batch;
  }
  int64_t row_bytes() const { return geometry.inner * sum.element_bytes; }
  int64_t accumulator_row_bytes() const {
    return geometry.inner * sum.accumulator_bytes;
  }
};

// A part of a line's table.
struct GradTile {
  int64_t line;
  int64_t first_row;
  int64_t rows;
  int64_t first_column;
  int64_t columns;
};

// Sums into a tile what pairs.Next yields, whose rows count from first_row.
// `memory` holds the tile as float32 where sums are not in place.
template <typename Pairs>
void SumTile(const GradJob& job, const GradTile& tile, Announce announce,
             void* memory, Pairs pairs) {
  const SumFunctions& sum = job.sum;
  const int64_t inner = job.geometry.inner;
  const int64_t first_grad_row = tile.line * job.geometry.indices_per_batch;
  const int64_t first_row = tile.line * job.geometry.rows + tile.first_row;
  const char* const grad =
      job.grad +
      (first_grad_row * inner + tile.first_column) * sum.element_bytes;
  char* const out = job.params_grad +
                    (first_row * inner + tile.first_column) * sum.element_bytes;

  void* const accumulators = sum.is_in_place ? out : memory;
  const int64_t stride = sum.is_in_place ? inner : tile.columns;
  if (stride == tile.columns) {
    sum.start(SumStart::kZero, tile.rows * stride, accumulators);
  } else {
    for (int64_t r = 0; r < tile.rows; ++r) {
      sum.start(SumStart::kZero, tile.columns,
                out + r * inner * sum.element_bytes);
    }
  }

  RowPairs block;
  while (pairs.Next(&block)) {
    sum.add(block, announce, grad, inner, tile.columns, accumulators, stride);
  }

  if (sum.is_in_place) return;
  const float* const sums = static_cast<const float*>(memory);
  if (tile.columns == inner) {
    sum.round(sums, tile.rows * inner, out);
    return;
  }
  for (int64_t r = 0; r < tile.rows; ++r) {
    sum.round(sums + r * stride, tile.columns,
              out + r * inner * sum.element_bytes);
  }
}

}  // namespace gather_stitch

#endif  // GATHER_STITCH_CORE_GRAD_TILE_H_
