// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// Jobs for the core with their buffers, as the benchmark times them and as
// their instructions are counted.

#ifndef GATHER_STITCH_BENCHMARKS_CORE_JOBS_H_
#define GATHER_STITCH_BENCHMARKS_CORE_JOBS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "benchmarks/core/lenders.h"
#include "tf_ops/core/gather_geometry.h"
#include "tf_ops/core/parallel_for.h"
#include "tf_ops/core/stitch.h"

namespace gather_stitch {

enum class Order { kSequential, kUniform, kAllEqual };
const char* OrderName(Order order);

// `count` numbers in [0, rows), the same on every machine.
std::vector<int32_t> MakeIndices(Order order, int64_t rows, int64_t count);

// Rows are of float32, of int8 where row_bytes is no multiple of 4.
struct GatherJob {
  GatherJob(Order order, int64_t table_rows, int64_t count, int64_t row_bytes);

  void Forward(const ParallelFor& parallel);
  void DenseGradient(const ParallelFor& parallel);
  void SparseGradient(const ParallelFor& parallel);

  int64_t row_bytes;
  GatherGeometry geometry;
  std::vector<int32_t> indices;
  std::vector<char> table;   // also the dense gradient
  std::vector<char> output;  // also the upstream gradient
  std::vector<int64_t> slots;
  ReusedScratch scratch;
};

// A permutation of `count` rows, spread over the inputs in equal parts.
struct StitchJob {
  StitchJob(int num_inputs, int64_t count, int64_t row_bytes);

  void Forward(const ParallelFor& parallel);
  void Gradient(const ParallelFor& parallel);

  int64_t row_bytes;
  std::vector<int32_t> indices;
  std::vector<char> data;  // also its gradient
  std::vector<char> merged;
  std::vector<StitchInput> inputs;
  std::vector<void*> data_grads;
  ReusedScratch scratch;
};

}  // namespace gather_stitch

#endif  // GATHER_STITCH_BENCHMARKS_CORE_JOBS_H_
