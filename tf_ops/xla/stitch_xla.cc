// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "tensorflow/compiler/tf2xla/xla_op_kernel.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tf_ops/core/error_words.h"
#include "tf_ops/core/gather_geometry.h"
#include "tf_ops/core/stitch.h"
#include "tf_ops/core/stitch_geometry.h"
#include "tf_ops/kernels/adapter.h"
#include "tf_ops/ops/rule_status.h"
#include "tf_ops/xla/lowering.h"
#include "xla/hlo/builder/lib/constants.h"
#include "xla/hlo/builder/xla_builder.h"
#include "xla/literal.h"

namespace gather_stitch {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::TensorShape;
using tensorflow::XlaOpKernel;
using tensorflow::XlaOpKernelContext;
using xla::XlaBuilder;
using xla::XlaOp;

struct Tensors {
  std::vector<XlaOp> ops;
  std::vector<TensorShape> shapes;

  int count() const { return static_cast<int>(ops.size()); }
};

absl::Status GetTensors(XlaOpKernelContext* ctx, const char* name,
                        Tensors* tensors) {
  return ctx->InputList(name, &tensors->ops, &tensors->shapes);
}

// The constant part of the shapes of data.
absl::Status GetConstantShape(const Tensors& indices, const Tensors& data,
                              TensorShape* constant) {
  std::vector<TensorDims> dims;
  dims.reserve(2 * indices.shapes.size());
  for (const TensorShape& shape : indices.shapes) dims.emplace_back(shape);
  for (const TensorShape& shape : data.shapes) dims.emplace_back(shape);
  std::vector<ShapeView> views;
  views.reserve(dims.size());
  for (const TensorDims& shape : dims) views.push_back(shape.view());
  const StitchShapes shapes = InferStitchShapes(
      views.data(), views.data() + indices.count(), indices.count());
  TF_RETURN_IF_ERROR(RuleStatus(shapes.error));
  return TensorShape::BuildTensorShape(shapes.constant_dims, constant);
}

int64_t PositionsOf(const Tensors& indices) {
  int64_t positions = 0;
  for (const TensorShape& shape : indices.shapes) {
    positions += shape.num_elements();
  }
  return positions;
}

XlaOp Joined(XlaBuilder* builder, const std::vector<XlaOp>& parts) {
  return parts.size() == 1 ? parts.front()
                           : xla::ConcatInDim(builder, parts, 0);
}

// The indices of all inputs as one vector, with kZeroRow where an input of
// bounded size ends: an index has the same position at any size.
XlaOp FlatIndices(XlaBuilder* builder, const Tensors& indices) {
  std::vector<XlaOp> parts;
  for (int m = 0; m < indices.count(); ++m) {
    parts.push_back(xla::Reshape(WithoutPadding(indices.ops[m]),
                                 {indices.shapes[m].num_elements()}));
  }
  return Joined(builder, parts);
}

// The rows of all inputs as one tensor, in the order of their positions.
XlaOp FlatData(XlaBuilder* builder, const Tensors& indices, const Tensors& data,
               const TensorShape& constant) {
  std::vector<XlaOp> parts;
  for (int m = 0; m < data.count(); ++m) {
    TensorShape shape({indices.shapes[m].num_elements()});
    shape.AppendShape(constant);
    parts.push_back(
        xla::Reshape(WithBoundsAsSizes(data.ops[m], indices.shapes[m].dims()),
                     shape.dim_sizes()));
  }
  return Joined(builder, parts);
}

// indices.shape + constant: the rows of `table` that the indices name, and
// zeros where one is outside.
XlaOp RowsOrZeros(XlaOp table, const TensorShape& table_shape, XlaOp indices,
                  const TensorShape& indices_shape) {
  const TensorDims table_dims(table_shape);
  const TensorDims indices_dims(indices_shape);
  const GatherShapes shapes =
      InferGatherShapes(table_dims.view(), indices_dims.view(), 0, 0);
  return GatherRows(table, table_shape, indices, indices_shape, shapes,
                    BadIndexAction::kZero);
}

// merged, from the winner of each of its rows.
XlaOp Merged(const Tensors& indices, const Tensors& data,
             const TensorShape& constant, XlaOp winners, int64_t merged_rows) {
  TensorShape table_shape({PositionsOf(indices)});
  table_shape.AppendShape(constant);
  const XlaOp table = FlatData(winners.builder(), indices, data, constant);
  return RowsOrZeros(table, table_shape, winners, TensorShape({merged_rows}));
}

// Indices are not declared as constants, for which TensorFlow would compile a
// program for each value. They may be known all the same.
class ParallelDynamicStitchXlaOp final : public XlaOpKernel {
 public:
  explicit ParallelDynamicStitchXlaOp(OpKernelConstruction* ctx)
      : XlaOpKernel(ctx) {}

  void Compile(XlaOpKernelContext* ctx) override {
    Tensors indices, data;
    OP_REQUIRES_OK(ctx, GetTensors(ctx, "indices", &indices));
    OP_REQUIRES_OK(ctx, GetTensors(ctx, "data", &data));
    TensorShape constant;
    OP_REQUIRES_OK(ctx, GetConstantShape(indices, data, &constant));
    std::vector<int64_t> winners;
    OP_REQUIRES_OK(ctx, GetWinners(ctx, indices, &winners));
    const int64_t merged_rows = winners.size();
    const XlaOp constant_winners = xla::ConvertElementType(
        xla::ConstantR1<int64_t>(ctx->builder(), winners),
        PositionType(PositionsOf(indices)));
    ctx->SetOutput(
        0, Merged(indices, data, constant, constant_winners, merged_rows));
  }

 private:
  static absl::Status GetWinners(XlaOpKernelContext* ctx,
                                 const Tensors& indices,
                                 std::vector<int64_t>* winners) {
    std::vector<xla::Literal> literals(indices.count());
    std::vector<StitchInput> inputs;
    for (int m = 0; m < indices.count(); ++m) {
      if (!ctx->ConstantInput(m, &literals[m]).ok()) {
        return absl::UnimplementedError(absl::StrCat(
            "the number of rows of a stitch is the largest index plus one, and "
            "indices[",
            m,
            "] is not known when XLA compiles: pass size= to "
            "parallel_dynamic_stitch or dynamic_stitch"));
      }
      inputs.push_back({literals[m].untyped_data(),
                        indices.shapes[m].num_elements(), nullptr});
    }
    const IndexType index_type = ctx->input_type(0) == tensorflow::DT_INT32
                                     ? IndexType::kInt32
                                     : IndexType::kInt64;
    int64_t merged_rows;
    const Outcome outcome = StitchMergedRows(
        inputs.data(), indices.count(), index_type, SerialFor(), &merged_rows);
    if (!outcome.ok()) {
      const TensorDims dims(indices.shapes[outcome.input]);
      return RuleStatus(StitchIndexError(outcome, dims.view(), INT64_MAX));
    }
    winners->resize(merged_rows);
    StitchWinners(inputs.data(), indices.count(), index_type, merged_rows,
                  BadIndexAction::kZero, SerialFor(), winners->data());
    return absl::OkStatus();
  }
};

class ParallelDynamicStitchV2XlaOp final : public XlaOpKernel {
 public:
  explicit ParallelDynamicStitchV2XlaOp(OpKernelConstruction* ctx)
      : XlaOpKernel(ctx), policy_(ctx) {}

  void Compile(XlaOpKernelContext* ctx) override {
    BadIndexAction action;
    OP_REQUIRES_OK(ctx, policy_.GetAction(&action));
    int64_t merged_rows;
    OP_REQUIRES_OK(ctx,
                   ctx->ConstantInputAsIntScalar("merged_rows", &merged_rows));
    OP_REQUIRES_OK(ctx,
                   RuleStatus(NegativeCountError("merged_rows", merged_rows)));
    Tensors indices, data;
    OP_REQUIRES_OK(ctx, GetTensors(ctx, "indices", &indices));
    OP_REQUIRES_OK(ctx, GetTensors(ctx, "data", &data));
    TensorShape constant;
    OP_REQUIRES_OK(ctx, GetConstantShape(indices, data, &constant));
    const XlaOp winners = Winners(FlatIndices(ctx->builder(), indices),
                                  PositionsOf(indices), merged_rows);
    ctx->SetOutput(0, Merged(indices, data, constant, winners, merged_rows));
  }

 private:
  XlaPolicy policy_;
};

class ParallelDynamicStitchGradXlaOp final : public XlaOpKernel {
 public:
  explicit ParallelDynamicStitchGradXlaOp(OpKernelConstruction* ctx)
      : XlaOpKernel(ctx) {}

  void Compile(XlaOpKernelContext* ctx) override {
    TensorShape grad_shape;
    OP_REQUIRES_OK(ctx, InputBounds(ctx, 0, &grad_shape));
    OP_REQUIRES(
        ctx, grad_shape.dims() >= 1,
        absl::InvalidArgumentError("grad must be at least 1 dimensional"));
    Tensors indices;
    OP_REQUIRES_OK(ctx, GetTensors(ctx, "indices", &indices));
    XlaBuilder* const builder = ctx->builder();
    const XlaOp grad = ctx->Input(0);
    const int64_t positions = PositionsOf(indices);
    const XlaOp rows = WonRows(FlatIndices(builder, indices), positions,
                               grad_shape.dim_size(0));
    int64_t start = 0;
    for (int m = 0; m < indices.count(); ++m) {
      const TensorShape& shape = indices.shapes[m];
      const int64_t end = start + shape.num_elements();
      const XlaOp part =
          indices.count() == 1 ? rows : xla::SliceInDim(rows, start, end, 1, 0);
      const XlaOp data_grad = RowsOrZeros(
          grad, grad_shape, xla::Reshape(part, shape.dim_sizes()), shape);
      ctx->SetOutput(m, WithSizesOf(indices.ops[m], data_grad));
      start = end;
    }
  }

 private:
  // For each position the row of `merged_rows` that it won, or kZeroRow.
  static XlaOp WonRows(XlaOp indices, int64_t positions, int64_t merged_rows) {
    if (positions == 0 || merged_rows == 0) {
      return xla::FullLike(indices, kZeroRow);
    }
    const TensorShape vector({positions});
    const TensorShape table({merged_rows});
    const TensorDims indices_dims(vector);
    const TensorDims table_dims(table);
    const GatherShapes shapes =
        InferGatherShapes(table_dims.view(), indices_dims.view(), 0, 0);
    // A bad index may read any winner: it reads no row of grad afterwards.
    const XlaOp winner =
        GatherRows(Winners(indices, positions, merged_rows), table, indices,
                   vector, shapes, BadIndexAction::kClip);
    const XlaOp position =
        xla::Iota(indices.builder(), PositionType(positions), positions);
    return xla::Select(xla::Eq(winner, position), indices,
                       xla::FullLike(indices, kZeroRow));
  }
};

GATHER_STITCH_REGISTER_XLA("GatherStitch>ParallelDynamicStitch", "T",
                           Name("GatherStitch>ParallelDynamicStitch"),
                           ParallelDynamicStitchXlaOp);
GATHER_STITCH_REGISTER_XLA("GatherStitch>ParallelDynamicStitchV2", "T",
                           Name("GatherStitch>ParallelDynamicStitchV2")
                               .CompileTimeConstantInput("merged_rows"),
                           ParallelDynamicStitchV2XlaOp);
GATHER_STITCH_REGISTER_XLA("GatherStitch>ParallelDynamicStitchGrad", "T",
                           Name("GatherStitch>ParallelDynamicStitchGrad"),
                           ParallelDynamicStitchGradXlaOp);

}  // namespace
}  // namespace gather_stitch
