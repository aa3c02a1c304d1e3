// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

#include <cstdint>
#include <vector>

#include "tensorflow/compiler/tf2xla/xla_op_kernel.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tf_ops/core/error_words.h"
#include "tf_ops/core/gather_geometry.h"
#include "tf_ops/kernels/adapter.h"
#include "tf_ops/ops/rule_status.h"
#include "tf_ops/xla/lowering.h"
#include "xla/hlo/builder/lib/constants.h"
#include "xla/hlo/builder/xla_builder.h"

namespace gather_stitch {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::TensorShape;
using tensorflow::XlaOpKernel;
using tensorflow::XlaOpKernelContext;
using xla::XlaOp;

// Of CLIP and WRAP, whatever the index is.
absl::Status NoRowError() {
  return absl::InvalidArgumentError(
      "an index is not in [0, 0), where there is no row to clip or wrap it to");
}

// The shapes of a gather of `params_shape` whose indices are input 1 and whose
// axis is input `axis_input`, and the rule that no value may break when rows
// are looked up.
absl::Status GetGatherShapes(XlaOpKernelContext* ctx,
                             const TensorShape& params_shape,
                             const TensorShape& indices_shape, int axis_input,
                             int64_t batch_dims, BadIndexAction action,
                             GatherShapes* shapes) {
  int64_t axis;
  TF_RETURN_IF_ERROR(ctx->ConstantInputAsIntScalar(axis_input, &axis));
  const TensorDims params(params_shape);
  const TensorDims indices(indices_shape);
  *shapes = InferGatherShapes(params.view(), indices.view(), axis, batch_dims);
  TF_RETURN_IF_ERROR(RuleStatus(shapes->error));
  const bool needs_a_row = action != BadIndexAction::kZero;
  if (needs_a_row && shapes->geometry.has_indices() &&
      shapes->geometry.rows == 0) {
    return NoRowError();
  }
  return absl::OkStatus();
}

class GatherV2XlaOp : public XlaOpKernel {
 public:
  explicit GatherV2XlaOp(OpKernelConstruction* ctx)
      : XlaOpKernel(ctx), policy_(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("batch_dims", &batch_dims_));
  }

  void Compile(XlaOpKernelContext* ctx) override {
    TensorShape params_shape;
    OP_REQUIRES_OK(ctx, InputBounds(ctx, 0, &params_shape));
    Gather(ctx, ctx->Input(0), params_shape);
  }

 protected:
  void Gather(XlaOpKernelContext* ctx, XlaOp params,
              const TensorShape& params_shape) {
    BadIndexAction action;
    OP_REQUIRES_OK(ctx, policy_.GetAction(&action));
    GatherShapes shapes;
    TensorShape indices_shape;
    OP_REQUIRES_OK(ctx, InputBounds(ctx, 1, &indices_shape));
    OP_REQUIRES_OK(ctx, GetGatherShapes(ctx, params_shape, indices_shape, 2,
                                        batch_dims_, action, &shapes));
    ctx->SetOutput(0, GatherRows(params, params_shape, ctx->Input(1),
                                 indices_shape, shapes, action));
  }

 private:
  XlaPolicy policy_;
  int64_t batch_dims_;
};

class ResourceGatherXlaOp final : public GatherV2XlaOp {
 public:
  explicit ResourceGatherXlaOp(OpKernelConstruction* ctx) : GatherV2XlaOp(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("dtype", &dtype_));
  }

  void Compile(XlaOpKernelContext* ctx) override {
    TensorShape shape;
    XlaOp value;
    OP_REQUIRES_OK(ctx, ctx->ReadVariableInput(0, dtype_, &shape, &value));
    Gather(ctx, value, shape);
  }

 private:
  tensorflow::DataType dtype_;
};

class GatherV2GradXlaOp final : public XlaOpKernel {
 public:
  explicit GatherV2GradXlaOp(OpKernelConstruction* ctx)
      : XlaOpKernel(ctx), policy_(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("batch_dims", &batch_dims_));
  }

  void Compile(XlaOpKernelContext* ctx) override {
    BadIndexAction action;
    OP_REQUIRES_OK(ctx, policy_.GetAction(&action));
    TensorShape params_shape;
    OP_REQUIRES_OK(ctx, ctx->ConstantInputAsShape(2, &params_shape));
    GatherShapes shapes;
    TensorShape grad_shape, indices_shape;
    OP_REQUIRES_OK(ctx, InputBounds(ctx, 0, &grad_shape));
    OP_REQUIRES_OK(ctx, InputBounds(ctx, 1, &indices_shape));
    OP_REQUIRES_OK(ctx, GetGatherShapes(ctx, params_shape, indices_shape, 3,
                                        batch_dims_, action, &shapes));
    const TensorDims grad(grad_shape);
    OP_REQUIRES_OK(
        ctx, RuleStatus(GatherGradShapeError(grad.view(), shapes.output())));
    ctx->SetOutput(
        0, ScatterAddRows(ctx->Input(0), SumTypeOf(ctx->input_xla_type(0)),
                          ctx->Input(1), indices_shape, params_shape, shapes,
                          action));
  }

 private:
  XlaPolicy policy_;
  int64_t batch_dims_;
};

// A slice for each index, also where the attr unique asks for distinct rows:
// how many there are is not known when compiling. A bad index has row kZeroRow,
// which a scatter drops, and values of zero, so that norms are those of the
// slices that count.
class GatherV2SparseGradXlaOp final : public XlaOpKernel {
 public:
  explicit GatherV2SparseGradXlaOp(OpKernelConstruction* ctx)
      : XlaOpKernel(ctx), policy_(ctx) {}

  void Compile(XlaOpKernelContext* ctx) override {
    BadIndexAction action;
    OP_REQUIRES_OK(ctx, policy_.GetAction(&action));
    int64_t params_rows;
    OP_REQUIRES_OK(ctx, ctx->ConstantInputAsIntScalar(2, &params_rows));
    OP_REQUIRES_OK(ctx,
                   RuleStatus(NegativeCountError("params_rows", params_rows)));
    TensorShape grad_shape, indices_shape;
    OP_REQUIRES_OK(ctx, InputBounds(ctx, 0, &grad_shape));
    OP_REQUIRES_OK(ctx, InputBounds(ctx, 1, &indices_shape));
    const TensorDims grad_dims(grad_shape);
    const TensorDims indices_dims(indices_shape);
    OP_REQUIRES_OK(ctx, RuleStatus(SparseGradShapeError(grad_dims.view(),
                                                        indices_dims.view())));
    const int64_t slices = indices_shape.num_elements();
    OP_REQUIRES(
        ctx, action == BadIndexAction::kZero || slices == 0 || params_rows > 0,
        NoRowError());

    const ResolvedIndices resolved =
        ResolveIndices(ctx->Input(1), params_rows, action);
    XlaOp rows = xla::ConvertElementType(resolved.rows, xla::S64);
    XlaOp slots = xla::Reshape(xla::Iota(ctx->builder(), xla::S64, slices),
                               indices_shape.dim_sizes());
    XlaOp values = ctx->Input(0);
    if (resolved.is_good.valid()) {
      const XlaOp nowhere = xla::FullLike(slots, kZeroRow);
      rows = xla::Select(resolved.is_good, rows, nowhere);
      slots = xla::Select(resolved.is_good, slots, nowhere);
      std::vector<int64_t> leading;
      for (int i = 0; i < indices_shape.dims(); ++i) leading.push_back(i);
      const XlaOp is_good = xla::BroadcastInDim(
          resolved.is_good, grad_shape.dim_sizes(), leading);
      values = xla::Select(is_good, values, xla::ZerosLike(values));
    }
    TensorShape values_shape({slices});
    for (int i = indices_shape.dims(); i < grad_shape.dims(); ++i) {
      values_shape.AddDim(grad_shape.dim_size(i));
    }
    ctx->SetOutput(0, Flat(values, grad_shape, values_shape));
    ctx->SetOutput(1, Flat(rows, indices_shape, TensorShape({slices})));
    ctx->SetOutput(2, slots);
  }

 private:
  // A bounded dimension may survive where nothing is reshaped.
  static XlaOp Flat(XlaOp value, const TensorShape& from,
                    const TensorShape& to) {
    return from == to ? value : xla::Reshape(value, to.dim_sizes());
  }

  XlaPolicy policy_;
};

GATHER_STITCH_REGISTER_XLA(
    "GatherStitch>GatherV2", "Tparams",
    Name("GatherStitch>GatherV2").CompileTimeConstantInput("axis"),
    GatherV2XlaOp);
GATHER_STITCH_REGISTER_XLA(
    "GatherStitch>ResourceGather", "dtype",
    Name("GatherStitch>ResourceGather").CompileTimeConstantInput("axis"),
    ResourceGatherXlaOp);
GATHER_STITCH_REGISTER_XLA("GatherStitch>GatherV2Grad", "T",
                           Name("GatherStitch>GatherV2Grad")
                               .CompileTimeConstantInput("params_shape")
                               .CompileTimeConstantInput("axis"),
                           GatherV2GradXlaOp);
GATHER_STITCH_REGISTER_XLA("GatherStitch>GatherV2SparseGrad", "T",
                           Name("GatherStitch>GatherV2SparseGrad")
                               .CompileTimeConstantInput("params_rows"),
                           GatherV2SparseGradXlaOp);

}  // namespace
}  // namespace gather_stitch
