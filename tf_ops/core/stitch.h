// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// Stitch: rows of many inputs, merged by index; the last writer wins.
//
// Positions number the indices of all inputs in order: the i-th index of input
// m has position count[0] + ... + count[m-1] + i. The winner map
//
//   winners[r] == the largest position whose index is r, or kNoWinner
//
// says everything else:
//
//   merged[r]    == the data row at winners[r], or zeros for a hole
//   data_grad[p] == grad[index at p] where winners[index at p] == p, else zeros

#ifndef GATHER_STITCH_CORE_STITCH_H_
#define GATHER_STITCH_CORE_STITCH_H_

#include <cstdint>

#include "tf_ops/core/indices.h"
#include "tf_ops/core/outcome.h"
#include "tf_ops/core/parallel_for.h"
#include "tf_ops/core/scratch.h"

namespace gather_stitch {

inline constexpr int64_t kNoWinner = -1;

struct StitchInput {
  const void* indices = nullptr;  // [count], kInt32 or kInt64
  int64_t count = 0;              // >= 0
  const void* data = nullptr;     // [count] rows; unused where no rows move
};

// *merged_rows = the largest index + 1, or 0 where there is none. kBadIndex for
// the first index that is negative or INT64_MAX (position is within its input).
Outcome StitchMergedRows(const StitchInput* inputs, int num_inputs,
                         IndexType index_type, const ParallelFor& parallel,
                         int64_t* merged_rows);

// Fills winners [merged_rows]. An index outside [0, merged_rows) is kBadIndex
// under kFail and names no row under kZero; other actions are not for stitch.
Outcome StitchWinners(const StitchInput* inputs, int num_inputs,
                      IndexType index_type, int64_t merged_rows,
                      BadIndexAction action, const ParallelFor& parallel,
                      int64_t* winners);

// The whole op for rows of plain bytes: merged [merged_rows] rows of
// `row_bytes`
// >= 0 bytes. Rows are whole at any thread count. `merged` overlaps no input.
// Takes at most 8 bytes of scratch a merged row (plus a constant for each
// thread and input). Returns any Outcome.
Outcome StitchRows(const StitchInput* inputs, int num_inputs,
                   IndexType index_type, int64_t row_bytes, int64_t merged_rows,
                   BadIndexAction action, const ParallelFor& parallel,
                   Scratch& scratch, void* merged);

// data_grad[m], [inputs[m].count] rows, from grad, [grad_rows] rows. An index
// outside [0, grad_rows) gives a row of zeros. Returns kOk or kOutOfMemory.
Outcome StitchGradRows(const StitchInput* inputs, int num_inputs,
                       IndexType index_type, int64_t row_bytes,
                       int64_t grad_rows, const void* grad,
                       const ParallelFor& parallel, Scratch& scratch,
                       void* const* data_grads);

}  // namespace gather_stitch

#endif  // GATHER_STITCH_CORE_STITCH_H_
