// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

#include "benchmarks/core/jobs.h"

#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <utility>

#include "tf_ops/core/gather.h"
#include "tf_ops/core/gather_grad.h"

namespace gather_stitch {
namespace {

// Standard distributions differ from library to library; this does not.
uint64_t NextRandom(uint64_t* state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return *state >> 33;
}

void Check(const Outcome& outcome) {
  if (outcome.ok()) return;
  std::fprintf(stderr, "a job of the benchmark failed with outcome %d\n",
               outcome.code);
  std::exit(1);
}

}  // namespace

const char* OrderName(Order order) {
  switch (order) {
    case Order::kSequential:
      return "sequential";
    case Order::kUniform:
      return "uniform";
    case Order::kAllEqual:
      break;
  }
  return "all_equal";
}

std::vector<int32_t> MakeIndices(Order order, int64_t rows, int64_t count) {
  std::vector<int32_t> indices(count);
  uint64_t state = 1;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = order == Order::kSequential ? i
                        : order == Order::kUniform  ? NextRandom(&state)
                                                    : rows / 2;
    indices[i] = static_cast<int32_t>(row % rows);
  }
  return indices;
}

GatherJob::GatherJob(Order order, int64_t table_rows, int64_t count,
                     int64_t row_bytes)
    : row_bytes(row_bytes),
      indices(MakeIndices(order, table_rows, count)),
      table(table_rows * row_bytes),
      output(count * row_bytes),
      slots(count) {
  geometry.batches = 1;
  geometry.outer = 1;
  geometry.rows = table_rows;
  geometry.inner = row_bytes % 4 == 0 ? row_bytes / 4 : row_bytes;
  geometry.indices_per_batch = count;
}

namespace {
SumType SumTypeOf(const GatherJob& job) {
  return job.geometry.inner == job.row_bytes ? SumType::kInt8
                                             : SumType::kFloat32;
}
}  // namespace

void GatherJob::Forward(const ParallelFor& parallel) {
  Check(GatherRows(geometry, row_bytes, table.data(), indices.data(),
                   IndexType::kInt32, BadIndexAction::kFail, parallel,
                   output.data()));
}

void GatherJob::DenseGradient(const ParallelFor& parallel) {
  scratch.TakeBack();
  Check(GatherGrad(geometry, SumTypeOf(*this), output.data(), indices.data(),
                   IndexType::kInt32, BadIndexAction::kFail, parallel, scratch,
                   table.data()));
}

void GatherJob::SparseGradient(const ParallelFor& parallel) {
  scratch.TakeBack();
  SparseGradPlan plan;
  Check(PlanSparseGrad(geometry.indices_per_batch, geometry.rows,
                       indices.data(), IndexType::kInt32, BadIndexAction::kFail,
                       /*unique=*/true, parallel, scratch, &plan,
                       slots.data()));
  // There are never more slices than rows.
  FillSparseGradValues(plan, geometry.inner, SumTypeOf(*this), output.data(),
                       parallel, table.data());
}

StitchJob::StitchJob(int num_inputs, int64_t count, int64_t row_bytes)
    : row_bytes(row_bytes),
      indices(MakeIndices(Order::kSequential, count, count)),
      data(count * row_bytes),
      merged(count * row_bytes) {
  uint64_t state = 1;
  for (int64_t i = count - 1; i > 0; --i) {
    std::swap(indices[i], indices[NextRandom(&state) % (i + 1)]);
  }
  for (int m = 0; m < num_inputs; ++m) {
    const int64_t begin = count * m / num_inputs;
    const int64_t end = count * (m + 1) / num_inputs;
    char* rows = data.data() + begin * row_bytes;
    inputs.push_back({indices.data() + begin, end - begin, rows});
    data_grads.push_back(rows);
  }
}

void StitchJob::Forward(const ParallelFor& parallel) {
  scratch.TakeBack();
  int64_t merged_rows;
  Check(StitchMergedRows(inputs.data(), inputs.size(), IndexType::kInt32,
                         parallel, &merged_rows));
  Check(StitchRows(inputs.data(), inputs.size(), IndexType::kInt32, row_bytes,
                   merged_rows, BadIndexAction::kFail, parallel, scratch,
                   merged.data()));
}

void StitchJob::Gradient(const ParallelFor& parallel) {
  scratch.TakeBack();
  Check(StitchGradRows(inputs.data(), inputs.size(), IndexType::kInt32,
                       row_bytes, indices.size(), merged.data(), parallel,
                       scratch, data_grads.data()));
}

}  // namespace gather_stitch
