// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// Between TensorFlow and the core: shapes, dtypes, threads, memory and errors
// of an OpKernel in the core's terms. Nothing here knows an op.

#ifndef GATHER_STITCH_KERNELS_ADAPTER_H_
#define GATHER_STITCH_KERNELS_ADAPTER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_handle.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow/core/framework/variant.h"
#include "tf_ops/core/indices.h"
#include "tf_ops/core/outcome.h"
#include "tf_ops/core/parallel_for.h"
#include "tf_ops/core/scratch.h"
#include "tf_ops/core/shape_view.h"
#include "tf_ops/ops/rule_status.h"

namespace gather_stitch {

// The dimensions of a tensor; view() is valid as long as this object is.
class TensorDims {
 public:
  explicit TensorDims(const tensorflow::TensorShape& shape)
      : dims_(shape.dim_sizes()) {}
  ShapeView view() const {
    return {dims_.data(), static_cast<int>(dims_.size())};
  }

 private:
  const absl::InlinedVector<int64_t, 4> dims_;
};

// Fails where a dimension is negative or the shape has 2^63 elements or more.
absl::Status MakeTensorShape(ShapeView shape, tensorflow::TensorShape* out);

// The value of an int32 or int64 scalar in host memory.
absl::Status ScalarValue(const tensorflow::Tensor& tensor,
                         const char* input_name, int64_t* value);

IndexType IndexTypeOf(tensorflow::DataType dtype);

// The action of attr bad_indices_policy on a CPU.
absl::Status GetBadIndexAction(tensorflow::OpKernelConstruction* ctx,
                               BadIndexAction* action);

// Lends the worker threads of the op's device, as many as the thread that calls
// the op may use (tf.data allows some callers just one).
class WorkerThreads final : public ParallelFor {
 public:
  explicit WorkerThreads(tensorflow::OpKernelContext* ctx);
  int max_threads() const override { return max_threads_; }
  void Run(int64_t items, int64_t grain, RangeFunction body) const override;

 private:
  tensorflow::thread::ThreadPool* workers_;
  int max_threads_;
};

// Lends temporary tensors of the op, freed with this object.
class TensorScratch final : public Scratch {
 public:
  explicit TensorScratch(tensorflow::OpKernelContext* ctx) : ctx_(ctx) {}
  void* Allocate(int64_t bytes) override;

  // Why an Allocate returned nullptr; the first that did.
  const absl::Status& status() const { return status_; }

 private:
  tensorflow::OpKernelContext* ctx_;
  std::vector<tensorflow::Tensor> tensors_;
  absl::Status status_;
};

// Calls f(Element{}) with the C++ type of a dtype whose elements are not plain
// bytes, and returns true; false for plain bytes.
template <typename F>
bool VisitObjectType(tensorflow::DataType dtype, F&& f) {
  switch (dtype) {
    case tensorflow::DT_STRING:
      f(tensorflow::tstring{});
      return true;
    case tensorflow::DT_VARIANT:
      f(tensorflow::Variant{});
      return true;
    case tensorflow::DT_RESOURCE:
      f(tensorflow::ResourceHandle{});
      return true;
    default:
      return false;
  }
}

// A range of objects is worth a thread of its own from about this number on: a
// copy of a string, variant or handle costs tens of nanoseconds.
inline constexpr int64_t kObjectsPerThread = 1024;

}  // namespace gather_stitch

#endif  // GATHER_STITCH_KERNELS_ADAPTER_H_
