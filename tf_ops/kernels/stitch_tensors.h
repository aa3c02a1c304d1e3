// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// The inputs of the stitch ops, checked, and their outputs, allocated, the same
// on every device; and the stitch of tensors of any dtype on a CPU, once their
// shapes are known to be right.

#ifndef GATHER_STITCH_KERNELS_STITCH_TENSORS_H_
#define GATHER_STITCH_KERNELS_STITCH_TENSORS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"
#include "tf_ops/core/indices.h"
#include "tf_ops/core/outcome.h"
#include "tf_ops/core/parallel_for.h"
#include "tf_ops/core/scratch.h"
#include "tf_ops/core/stitch.h"
#include "tf_ops/core/stitch_geometry.h"

namespace gather_stitch {

std::vector<StitchInput> StitchInputs(const tensorflow::OpInputList& indices);
std::vector<StitchInput> StitchInputs(const tensorflow::OpInputList& indices,
                                      const tensorflow::OpInputList& data);

StitchShapes InferStitchShapes(const tensorflow::OpInputList& indices,
                               const tensorflow::OpInputList& data);

// The shape of a merged row.
absl::Status StitchConstant(const tensorflow::OpInputList& indices,
                            const tensorflow::OpInputList& data,
                            tensorflow::TensorShape* constant);

// The input merged_rows of ParallelDynamicStitchV2.
absl::Status GivenMergedRows(tensorflow::OpKernelContext* ctx,
                             const tensorflow::OpInputList& indices,
                             int64_t* merged_rows);

absl::Status AllocateMerged(tensorflow::OpKernelContext* ctx,
                            int64_t merged_rows,
                            const tensorflow::TensorShape& constant,
                            tensorflow::Tensor** merged);

// ParallelDynamicStitchGrad: the shape of a row of grad, and the memory of each
// output.
absl::Status PrepareStitchGrad(tensorflow::OpKernelContext* ctx,
                               const tensorflow::OpInputList& indices,
                               tensorflow::TensorShape* constant,
                               std::vector<void*>* data_grads);

// kOk, or the words of a bad index.
absl::Status StitchStatus(const Outcome& outcome,
                          const tensorflow::OpInputList& indices,
                          int64_t merged_rows);

// Calls f(row, input, slice) for each of winners [begin, end) that is one: the
// slice of that input won the row.
template <typename F>
void ForEachWinner(const std::vector<StitchInput>& inputs,
                   const int64_t* winners, int64_t begin, int64_t end, F&& f) {
  std::vector<int64_t> starts;  // the position of each input's first index
  int64_t start = 0;
  for (const StitchInput& input : inputs) {
    starts.push_back(start);
    start += input.count;
  }
  for (int64_t row = begin; row < end; ++row) {
    const int64_t winner = winners[row];
    if (winner == kNoWinner) continue;
    // The last input that starts at or before the winner: inputs without
    // indices start where the next one does.
    const int m = static_cast<int>(
        std::upper_bound(starts.begin(), starts.end(), winner) -
        starts.begin() - 1);
    f(row, m, winner - starts[m]);
  }
}

// The winner map in scratch memory; *winners is nullptr where there are no
// rows.
Outcome MakeWinners(const std::vector<StitchInput>& inputs,
                    IndexType index_type, int64_t rows, BadIndexAction action,
                    const ParallelFor& parallel, Scratch& scratch,
                    int64_t** winners);

// Fills `merged`, a new tensor of rows of `inner` elements, on the threads of
// `parallel`. Returns any Outcome.
Outcome StitchTensors(tensorflow::OpKernelContext* ctx,
                      const std::vector<StitchInput>& inputs,
                      IndexType index_type, int64_t inner,
                      BadIndexAction action, const ParallelFor& parallel,
                      Scratch& scratch, tensorflow::Tensor* merged);

}  // namespace gather_stitch

#endif  // GATHER_STITCH_KERNELS_STITCH_TENSORS_H_
