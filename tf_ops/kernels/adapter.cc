// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

#include "tf_ops/kernels/adapter.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tensorflow/core/platform/threadpool.h"
#include "tensorflow/core/util/work_sharder.h"

namespace gather_stitch {

using tensorflow::DataType;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::thread::ThreadPool;

absl::Status MakeTensorShape(ShapeView shape, TensorShape* out) {
  if (shape.rank > kMaxRank) {
    return absl::InvalidArgumentError(
        absl::StrCat("a shape of rank ", shape.rank, " has more than ",
                     kMaxRank, " dimensions"));
  }
  return TensorShape::BuildTensorShape(
      absl::Span<const int64_t>(shape.dims, shape.rank), out);
}

absl::Status ScalarValue(const Tensor& tensor, const char* input_name,
                         int64_t* value) {
  if (tensor.dims() != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(input_name, " must be scalar"));
  }
  // Not by scalar(), which ends the process where memory that comes from
  // elsewhere (DLPack) is aligned to no more than its numbers.
  if (tensor.dtype() == tensorflow::DT_INT32) {
    *value = *static_cast<const int32_t*>(tensor.data());
  } else {
    *value = *static_cast<const int64_t*>(tensor.data());
  }
  return absl::OkStatus();
}

IndexType IndexTypeOf(DataType dtype) {
  switch (dtype) {
    case tensorflow::DT_INT8:
      return IndexType::kInt8;
    case tensorflow::DT_UINT8:
      return IndexType::kUint8;
    case tensorflow::DT_INT16:
      return IndexType::kInt16;
    case tensorflow::DT_UINT16:
      return IndexType::kUint16;
    case tensorflow::DT_INT32:
      return IndexType::kInt32;
    case tensorflow::DT_UINT32:
      return IndexType::kUint32;
    case tensorflow::DT_UINT64:
      return IndexType::kUint64;
    default:  // The op definitions allow no other dtype.
      return IndexType::kInt64;
  }
}

absl::Status GetBadIndexAction(OpKernelConstruction* ctx,
                               BadIndexAction* action) {
  std::string policy;
  TF_RETURN_IF_ERROR(ctx->GetAttr("bad_indices_policy", &policy));
  if (policy == "IGNORE") {
    *action = BadIndexAction::kZero;
  } else if (policy == "CLIP") {
    *action = BadIndexAction::kClip;
  } else if (policy == "WRAP") {
    *action = BadIndexAction::kWrap;
  } else {
    *action = BadIndexAction::kFail;
  }
  return absl::OkStatus();
}

WorkerThreads::WorkerThreads(OpKernelContext* ctx)
    : workers_(ctx->device()->tensorflow_cpu_worker_threads()->workers),
      max_threads_(
          std::max(1, std::min(workers_->NumThreads(),
                               tensorflow::GetPerThreadMaxParallelism()))) {}

void WorkerThreads::Run(int64_t items, int64_t grain,
                        RangeFunction body) const {
  // A few ranges for each thread even out threads that lose their core to other
  // work for a while. Where fewer threads are allowed than the pool has, as
  // many ranges as threads keep to what is allowed.
  const int64_t most_ranges =
      max_threads_ < workers_->NumThreads() ? max_threads_ : 4 * max_threads_;
  const int64_t ranges = std::min(most_ranges, items / grain);
  if (max_threads_ == 1 || ranges <= 1) {
    if (items > 0) body(0, items);
    return;
  }
  const int64_t items_per_range = items / ranges + (items % ranges != 0);
  workers_->ParallelFor(
      items, ThreadPool::SchedulingParams::Fixed(items_per_range),
      [body](int64_t begin, int64_t end) { body(begin, end); });
}

void* TensorScratch::Allocate(int64_t bytes) {
  tensors_.emplace_back();
  const absl::Status status = ctx_->allocate_temp(
      tensorflow::DT_UINT8, TensorShape({bytes}), &tensors_.back());
  // The core may ask for more before it looks at what it was given.
  status_.Update(status);
  return status.ok() ? tensors_.back().data() : nullptr;
}

}  // namespace gather_stitch
