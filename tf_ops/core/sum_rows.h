// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// Adds scattered rows into rows of accumulators.
//
//   accumulators[rows[i]] += grad[positions[i]]   for i ascending
//
// This is the one place where the core knows a dtype.

#ifndef GATHER_STITCH_CORE_SUM_ROWS_H_
#define GATHER_STITCH_CORE_SUM_ROWS_H_

#include <cstdint>

#include "tf_ops/core/gather_grad.h"
#include "tf_ops/core/resolve_block.h"

namespace gather_stitch {

// Which row of grad goes where. Where positions are consecutive only the first
// of them is set.
struct RowPairs {
  int64_t count = 0;
  bool is_consecutive = false;
  int64_t rows[kBlockIndices];       // of the accumulators
  int64_t positions[kBlockIndices];  // of grad

  bool is_full() const { return count == kBlockIndices; }
  void Push(int64_t row, int64_t position) {
    rows[count] = row;
    positions[count] = position;
    ++count;
  }
};

// Which of the rows are announced ahead, since they are likely far away.
enum class Announce { kNone, kAccumulators, kGrad };

// A number to start a sum with.
enum class SumStart {
  kZero,
  // Added to any number gives that number, also to minus zero: the sum is then
  // its first term plus the others.
  kNeutral,
};

struct SumFunctions {
  int64_t element_bytes;
  int64_t accumulator_bytes;

  // Where true, accumulators are elements; else they are float32 and there is
  // a rounding at the end.
  bool is_in_place;

  // Sets `count` accumulators.
  void (*start)(SumStart start, int64_t count, void* accumulators);

  // The strides between rows and the columns to add are in elements.
  void (*add)(const RowPairs& pairs, Announce announce, const void* grad,
              int64_t grad_stride, int64_t columns, void* accumulators,
              int64_t accumulator_stride);

  // Rounds `count` accumulators to elements; null where is_in_place.
  void (*round)(const float* accumulators, int64_t count, void* elements);
};

const SumFunctions& SumFunctionsOf(SumType type);

}  // namespace gather_stitch

#endif  // GATHER_STITCH_CORE_SUM_ROWS_H_
