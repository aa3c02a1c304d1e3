// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// Scatter-add: rows added to, or subtracted from, the rows of a table in place.
//
//   table[indices[i], k] += updates[i, k]     (-= where subtract)
//                                             for i ascending, k in [0, inner)
//
// one operation after the other, each rounded to the type: half and bfloat16
// too, for here every single sum is a value of the table that somebody may
// read. Integers wrap around. The result does not depend on threads or
// instruction set.

#ifndef GATHER_STITCH_CORE_SCATTER_ADD_H_
#define GATHER_STITCH_CORE_SCATTER_ADD_H_

#include <cstdint>

#include "tf_ops/core/gather_grad.h"
#include "tf_ops/core/indices.h"
#include "tf_ops/core/outcome.h"
#include "tf_ops/core/parallel_for.h"
#include "tf_ops/core/scratch.h"

namespace gather_stitch {

struct ScatterAddJob {
  int64_t count = 0;          // of indices, >= 0
  int64_t rows = 0;           // of the table, >= 0
  int64_t inner = 0;          // elements of a row, >= 0
  int64_t update_stride = 0;  // elements from one update to the next, >= inner
  // Where > 0 there is one update of so many elements, a divisor of inner,
  // which is repeated along all of the rows.
  int64_t scalar_lanes = 0;
  bool subtract = false;
};

// `updates` and `table` are aligned to their type and do not overlap. Of the
// floats `type` is none of 8 bits. kBadIndex for the first index outside [0,
// rows), also where inner == 0; the updates before it are then added, and no
// other. Takes at most 16 bytes of scratch an index (plus a row where
// scalar_lanes > 0). Returns any Outcome; nothing was added where that is
// kOutOfMemory.
Outcome ScatterAdd(const ScatterAddJob& job, SumType type, const void* updates,
                   const void* indices, IndexType index_type,
                   const ParallelFor& parallel, Scratch& scratch, void* table);

}  // namespace gather_stitch

#endif  // GATHER_STITCH_CORE_SCATTER_ADD_H_
