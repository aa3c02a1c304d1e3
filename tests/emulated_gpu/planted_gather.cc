// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// A small gather on an emulated device that makes one mistake on request, so
// that the tests can show that they would find it in the real ones; and a table
// that is larger than memory.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/device_base.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/platform/stream_executor.h"

namespace emulated_gpu {
namespace {

using stream_executor::DeviceAddressBase;
using stream_executor::Stream;
using tensorflow::DEVICE_GPU;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

REGISTER_OP("EmulatedGpu>PlantedGather")
    .Input("params: uint8")
    .Input("indices: int64")
    .Output("output: uint8")
    .Attr(
        "fault: {'none', 'host read', 'early free', 'early release', "
        "'past the end', '32-bit offset'}")
    .SetShapeFn(tensorflow::shape_inference::UnknownShape)
    .Doc(R"doc(
output[i] = params[indices[i]], for params of rank 2 and indices of rank 1.
)doc");

REGISTER_OP("EmulatedGpu>SparseTable")
    .Input("shape: int64")
    .Input("rows: int64")
    .Input("values: uint8")
    .Output("table: uint8")
    .SetShapeFn(tensorflow::shape_inference::UnknownShape)
    .Doc(R"doc(
table[rows[i]] = values[i], and zeros elsewhere that take no memory; larger
than 64 MiB.
)doc");

// What the kernel reads from device memory.
struct Sizes {
  int64_t indices;
  int64_t row_bytes;
};

// The kernel, a task of the stream.
template <typename Offset>
void GatherRows(const Sizes* sizes, const uint8_t* params,
                const int64_t* indices, uint8_t* output) {
  for (int64_t i = 0; i < sizes->indices; ++i) {
    const Offset from = static_cast<Offset>(indices[i] * sizes->row_bytes);
    std::copy_n(params + from, sizes->row_bytes, output + i * sizes->row_bytes);
  }
}

class PlantedGatherOp final : public OpKernel {
 public:
  explicit PlantedGatherOp(OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("fault", &fault_));
  }

  void Compute(OpKernelContext* ctx) override {
    const Tensor& indices = ctx->input(1);
    const int64_t count = indices.NumElements();
    const int64_t row_bytes = ctx->input(0).dim_size(1);
    Tensor* output = nullptr;
    OP_REQUIRES_OK(
        ctx, ctx->allocate_output(0, TensorShape({count, row_bytes}), &output));
    const auto* params = static_cast<const uint8_t*>(ctx->input(0).data());
    const auto* rows = static_cast<const int64_t*>(indices.data());
    auto* to = static_cast<uint8_t*>(output->data());
    Stream* const stream = ctx->op_device_context()->stream();

    if (fault_ == "host read") {
      OP_REQUIRES(ctx, rows[0] >= 0,
                  absl::InvalidArgumentError("indices[0] is negative"));
    }

    Tensor scratch;
    OP_REQUIRES_OK(ctx,
                   ctx->allocate_temp(tensorflow::DT_UINT8,
                                      TensorShape({sizeof(Sizes)}), &scratch));
    auto staging = std::make_unique<Sizes>(Sizes{count, row_bytes});
    DeviceAddressBase sizes(scratch.data(), sizeof(Sizes));
    OP_REQUIRES_OK(ctx, stream->Memcpy(&sizes, staging.get(), sizeof(Sizes)));
    if (fault_ == "early free") {
      staging.reset();
    } else {
      OP_REQUIRES_OK(ctx,
                     stream->DoHostCallback([staging = std::move(staging)] {}));
    }
    if (fault_ == "early release") scratch = Tensor();

    const auto gather =
        fault_ == "32-bit offset" ? GatherRows<uint32_t> : GatherRows<int64_t>;
    const auto* device_sizes = static_cast<const Sizes*>(sizes.opaque());
    OP_REQUIRES_OK(ctx, stream->DoHostCallback(
                            [=] { gather(device_sizes, params, rows, to); }));
    if (fault_ == "past the end") {
      uint8_t* const end = to + output->TotalBytes();
      OP_REQUIRES_OK(ctx, stream->DoHostCallback([=] { *end = 0; }));
    }
  }

 private:
  std::string fault_;
};

class SparseTableOp final : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* ctx) override {
    const auto shape = ctx->input(0).vec<int64_t>();
    const auto rows = ctx->input(1).vec<int64_t>();
    const auto values = ctx->input(2).matrix<uint8_t>();
    Tensor* table = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(
                            0, TensorShape({shape(0), shape(1)}), &table));
    Stream* const stream = ctx->op_device_context()->stream();
    for (int64_t i = 0; i < rows.size(); ++i) {
      DeviceAddressBase row(
          static_cast<uint8_t*>(table->data()) + rows(i) * shape(1), shape(1));
      OP_REQUIRES_OK(ctx, stream->Memcpy(&row, &values(i, 0), shape(1)));
    }
    OP_REQUIRES_OK(ctx, stream->BlockHostUntilDone());
  }
};

REGISTER_KERNEL_BUILDER(Name("EmulatedGpu>PlantedGather").Device(DEVICE_GPU),
                        PlantedGatherOp);
REGISTER_KERNEL_BUILDER(Name("EmulatedGpu>SparseTable")
                            .Device(DEVICE_GPU)
                            .HostMemory("shape")
                            .HostMemory("rows")
                            .HostMemory("values"),
                        SparseTableOp);

}  // namespace
}  // namespace emulated_gpu
