// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

#include "tf_ops/kernels/gather_tensor.h"

#include <algorithm>

#include "tensorflow/core/platform/logging.h"
#include "tf_ops/core/error_words.h"
#include "tf_ops/core/gather.h"
#include "tf_ops/kernels/gather_inputs.h"

namespace gather_stitch {

using tensorflow::OpKernelContext;
using tensorflow::Tensor;

namespace {

// GatherRows for elements that are copied as objects. The elements of a new
// tensor are empty ones, so a kZeroRow needs no write.
template <typename Element>
Outcome GatherObjects(const GatherGeometry& geometry, const Tensor& params,
                      const Tensor& indices, BadIndexAction action,
                      const ParallelFor& parallel, Scratch& scratch,
                      Tensor* output) {
  const int64_t num_indices = indices.NumElements();
  if (num_indices == 0) return Outcome();
  auto* rows = static_cast<int64_t*>(
      scratch.Allocate(num_indices * static_cast<int64_t>(sizeof(int64_t))));
  if (rows == nullptr) return Outcome::OutOfMemory();
  const Outcome outcome =
      ResolveIndices(num_indices, geometry.rows, indices.data(),
                     IndexTypeOf(indices.dtype()), action, parallel, rows);
  if (!outcome.ok() || !geometry.has_output()) return outcome;

  const auto* source = static_cast<const Element*>(params.data());
  auto* target = static_cast<Element*>(output->data());
  const int64_t inner = geometry.inner;
  const int64_t per_batch = geometry.indices_per_batch;
  const int64_t output_rows = geometry.batches * geometry.outer * per_batch;
  const auto copy_rows = [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t slab = r / per_batch;  // batch * outer
      const int64_t batch = slab / geometry.outer;
      const int64_t row = rows[batch * per_batch + r % per_batch];
      if (row < 0) continue;
      const Element* from = source + (slab * geometry.rows + row) * inner;
      std::copy(from, from + inner, target + r * inner);
    }
  };
  parallel.Run(output_rows, std::max<int64_t>(1, kObjectsPerThread / inner),
               copy_rows);
  return outcome;
}

}  // namespace

absl::Status GatherStatus(const Outcome& outcome, const Tensor& indices,
                          int64_t rows, const TensorScratch& scratch) {
  if (outcome.code == Outcome::kOutOfMemory) return scratch.status();
  if (outcome.ok()) return absl::OkStatus();
  return RuleStatus(GatherIndexError(outcome,
                                     TensorDims(indices.shape()).view(),
                                     IndexTypeOf(indices.dtype()), rows));
}

Outcome GatherElements(OpKernelContext* ctx, const GatherGeometry& geometry,
                       const Tensor& params, const Tensor& indices,
                       BadIndexAction action, Scratch& scratch,
                       Tensor* output) {
  const WorkerThreads workers(ctx);
  Outcome outcome;
  const bool are_objects = VisitObjectType(params.dtype(), [&](auto element) {
    outcome = GatherObjects<decltype(element)>(
        geometry, params, indices, action, workers, scratch, output);
  });
  if (!are_objects) {
    outcome =
        GatherRows(geometry, RowBytes(geometry, params.dtype()), params.data(),
                   indices.data(), IndexTypeOf(indices.dtype()), action,
                   workers, output->data());
  }
  VLOG(1) << ctx->op_kernel().name() << ": "
          << (are_objects ? "objects, " : "bytes, ") << geometry.batches
          << " x " << geometry.outer << " x " << geometry.indices_per_batch
          << " rows of " << geometry.inner << " elements, "
          << workers.max_threads() << " threads";
  return outcome;
}

absl::Status GatherTensor(OpKernelContext* ctx, const GatherGeometry& geometry,
                          const Tensor& params, const Tensor& indices,
                          BadIndexAction action, Tensor* output) {
  TensorScratch scratch(ctx);
  const Outcome outcome =
      GatherElements(ctx, geometry, params, indices, action, scratch, output);
  return GatherStatus(outcome, indices, geometry.rows, scratch);
}

}  // namespace gather_stitch
