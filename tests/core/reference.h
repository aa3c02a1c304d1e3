// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// The functions of the core as nested loops, straight from their equations:
// slow, with no thought of threads, blocks or caches. Indices are numbers
// without a dtype here; a uint64 above 2^63 is one, too.

#ifndef GATHER_STITCH_TESTS_CORE_REFERENCE_H_
#define GATHER_STITCH_TESTS_CORE_REFERENCE_H_

#include <cstdint>
#include <vector>

#include "tf_ops/core/gather_geometry.h"
#include "tf_ops/core/gather_grad.h"
#include "tf_ops/core/indices.h"
#include "tf_ops/core/outcome.h"

namespace gather_stitch {
namespace reference {

__extension__ typedef __int128 Wide;

// The numbers at `indices`.
std::vector<Wide> ReadIndices(const void* indices, IndexType type,
                              int64_t count);

// output[batch, outer, i] == params[batch, outer, indices[batch, i]]
Outcome GatherRows(const GatherGeometry& geometry, int64_t row_bytes,
                   const void* params, const std::vector<Wide>& indices,
                   BadIndexAction action, void* output);

// params_grad[batch, outer, r, k] ==
//   sum over i with indices[batch, i] == r of grad[batch, outer, i, k]
Outcome GatherGrad(const GatherGeometry& geometry, SumType sum_type,
                   const void* grad, const std::vector<Wide>& indices,
                   BadIndexAction action, void* params_grad);

struct Slices {
  std::vector<int64_t> rows;
  std::vector<int64_t> slots;
  std::vector<char> values;
};

// values[s] == sum over i with slots[i] == s of grad[i]
Outcome SparseGrad(int64_t params_rows, const std::vector<Wide>& indices,
                   BadIndexAction action, bool unique, int64_t inner,
                   SumType sum_type, const void* grad, Slices* slices);

// The indices of each input.
using StitchIndices = std::vector<std::vector<Wide>>;

Outcome StitchMergedRows(const StitchIndices& indices, int64_t* merged_rows);

Outcome StitchWinners(const StitchIndices& indices, int64_t merged_rows,
                      BadIndexAction action, int64_t* winners);

// merged[indices[m][i]] = data[m][i], one after the other.
Outcome StitchRows(const StitchIndices& indices,
                   const std::vector<const void*>& data, int64_t row_bytes,
                   int64_t merged_rows, BadIndexAction action, void* merged);

// data_grads[m][i] == grad[indices[m][i]] where no later index is the same and
// the row exists, else zeros.
void StitchGradRows(const StitchIndices& indices, int64_t row_bytes,
                    int64_t grad_rows, const void* grad,
                    const std::vector<void*>& data_grads);

}  // namespace reference
}  // namespace gather_stitch

#endif  // GATHER_STITCH_TESTS_CORE_REFERENCE_H_
