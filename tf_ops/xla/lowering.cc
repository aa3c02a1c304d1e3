// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

#include "tf_ops/xla/lowering.h"

#include <limits>
#include <vector>

#include "tf_ops/core/stitch.h"
#include "xla/hlo/builder/lib/arithmetic.h"
#include "xla/hlo/builder/lib/constants.h"
#include "xla/primitive_util.h"
#include "xla/shape.h"
#include "xla/shape_util.h"

namespace gather_stitch {

using tensorflow::TensorShape;
using xla::PrimitiveType;
using xla::XlaBuilder;
using xla::XlaOp;

namespace {

constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();

// The type of `op`, or an invalid one where building it has failed, which the
// builder reports at its end.
PrimitiveType TypeOf(XlaOp op) {
  const auto shape = op.builder()->GetShape(op);
  return shape.ok() ? shape->element_type() : xla::PRIMITIVE_TYPE_INVALID;
}

// Appends begin, begin + 1, ..., begin + count - 1.
template <typename Dims>
void AddRange(int64_t begin, int64_t count, Dims* dims) {
  for (int64_t i = 0; i < count; ++i) dims->Add(begin + i);
}

// Where the dimensions of a gather are. The output, or grad, has those of
// params before the axis, of indices after the batch, and of params after the
// axis: no dimension moves, so that nothing is transposed.
struct Layout {
  int64_t axis;
  int64_t batch_dims;
  int64_t indices_rank;
  int64_t params_rank;

  int64_t looked_up() const { return indices_rank - batch_dims; }

  template <typename Dims>
  void AddWindow(Dims* dims) const {
    AddRange(batch_dims, axis - batch_dims, dims);
    AddRange(axis + looked_up(), params_rank - axis - 1, dims);
  }

  // Where in the output the dimensions of indices are.
  std::vector<int64_t> IndicesInOutput() const {
    std::vector<int64_t> dims;
    for (int64_t i = 0; i < indices_rank; ++i) {
      dims.push_back(i < batch_dims ? i : axis + i - batch_dims);
    }
    return dims;
  }
};

Layout LayoutOf(const GatherShapes& shapes, const TensorShape& params_shape,
                const TensorShape& indices_shape) {
  return {*shapes.axis, *shapes.batch_dims, indices_shape.dims(),
          params_shape.dims()};
}

// Indices as s32 or s64; a bad one stays bad, or is the one that it means where
// it has no number there.
XlaOp SignedIndices(XlaOp indices, int64_t rows, BadIndexAction action) {
  PrimitiveType type = TypeOf(indices);
  if (type == xla::U64) {
    // Half of its values have no s64 of their own; as a negative one they stay
    // outside.
    const XlaOp limit = xla::ConstantR0<uint64_t>(indices.builder(), rows);
    if (action == BadIndexAction::kClip) {
      indices = xla::Min(indices, limit - xla::ScalarLike(limit, 1));
    } else if (action == BadIndexAction::kWrap) {
      indices = xla::Rem(indices, limit);
    }
  }
  const bool is_narrow = xla::primitive_util::BitWidth(type) < 32;
  if (rows > kMaxInt32 || !(is_narrow || type == xla::S32)) {
    type = xla::S64;
  } else {
    type = xla::S32;
  }
  return xla::ConvertElementType(indices, type);
}

}  // namespace

XlaPolicy::XlaPolicy(tensorflow::OpKernelConstruction* ctx) {
  OP_REQUIRES_OK(ctx, ctx->GetAttr("bad_indices_policy", &name_));
}

absl::Status XlaPolicy::GetAction(BadIndexAction* action) const {
  if (name_ == "ERROR") {
    return absl::UnimplementedError(
        "bad_indices_policy=\"ERROR\" can not be compiled by XLA, whose "
        "programs can not fail for the value of an index: use \"DEFAULT\" or "
        "\"IGNORE\", for which such an index reads zeros or is dropped, or "
        "\"CLIP\" or \"WRAP\" where the op has them, or leave the op out of "
        "jit_compile=True");
  }
  *action = name_ == "CLIP"   ? BadIndexAction::kClip
            : name_ == "WRAP" ? BadIndexAction::kWrap
                              : BadIndexAction::kZero;
  return absl::OkStatus();
}

absl::Status InputBounds(tensorflow::XlaOpKernelContext* ctx, int input,
                         TensorShape* shape) {
  TF_ASSIGN_OR_RETURN(const xla::Shape xla_shape, ctx->InputXlaShape(input));
  return TensorShape::BuildTensorShape(xla_shape.dimensions(), shape);
}

ResolvedIndices ResolveIndices(XlaOp indices, int64_t rows,
                               BadIndexAction action) {
  indices = SignedIndices(indices, rows, action);
  const XlaOp zero = xla::ScalarLike(indices, 0);
  const XlaOp limit = xla::ScalarLike(indices, rows);
  if (action == BadIndexAction::kClip) {
    return {xla::Clamp(zero, indices, xla::ScalarLike(indices, rows - 1)), {}};
  }
  if (action == BadIndexAction::kWrap) {
    const XlaOp remainder = xla::Rem(indices, limit);
    return {xla::Select(xla::Lt(remainder, zero), remainder + limit, remainder),
            {}};
  }
  return {indices, xla::And(xla::Ge(indices, zero), xla::Lt(indices, limit))};
}

XlaOp GatherRows(XlaOp params, const TensorShape& params_shape, XlaOp indices,
                 const TensorShape& indices_shape, const GatherShapes& shapes,
                 BadIndexAction action) {
  XlaBuilder* const builder = params.builder();
  const PrimitiveType type = TypeOf(params);
  if (xla::primitive_util::IsFloatingPointType(type) &&
      xla::primitive_util::BitWidth(type) == 8) {
    // XLA selects among these by way of wider floats, which keep no NaN's bits.
    const XlaOp bits =
        GatherRows(xla::BitcastConvertType(params, xla::U8), params_shape,
                   indices, indices_shape, shapes, action);
    return xla::BitcastConvertType(bits, type);
  }
  const ShapeView output_view = shapes.output();
  const absl::Span<const int64_t> output_dims(output_view.dims,
                                              output_view.rank);
  if (!shapes.geometry.has_output() || shapes.geometry.rows == 0) {
    return ZerosOf(builder, type, output_dims);
  }
  const Layout layout = LayoutOf(shapes, params_shape, indices_shape);
  xla::GatherDimensionNumbers dims;
  layout.AddWindow(dims.mutable_offset_dims());
  dims.add_collapsed_slice_dims(layout.axis);
  dims.add_start_index_map(layout.axis);
  dims.set_index_vector_dim(layout.indices_rank);
  AddRange(0, layout.batch_dims, dims.mutable_operand_batching_dims());
  AddRange(0, layout.batch_dims, dims.mutable_start_indices_batching_dims());
  std::vector<int64_t> slice_sizes;
  for (int64_t i = 0; i < layout.params_rank; ++i) {
    const bool is_one = i < layout.batch_dims || i == layout.axis;
    slice_sizes.push_back(is_one ? 1 : params_shape.dim_size(i));
  }
  const int64_t rows = shapes.geometry.rows;
  // XLA's gather clips by itself, and would do it twice for each element.
  const ResolvedIndices resolved =
      action == BadIndexAction::kClip
          ? ResolvedIndices{SignedIndices(indices, rows, action), {}}
          : ResolveIndices(indices, rows, action);
  const XlaOp slices = xla::Gather(params, resolved.rows, dims, slice_sizes);
  if (!resolved.is_good.valid()) return slices;
  // A bad index has read some row: XLA clamps it.
  const XlaOp is_good = xla::BroadcastInDim(resolved.is_good, output_dims,
                                            layout.IndicesInOutput());
  return xla::Select(is_good, slices, xla::ZerosLike(slices));
}

XlaOp ScatterAddRows(XlaOp grad, PrimitiveType sum_type, XlaOp indices,
                     const TensorShape& indices_shape,
                     const TensorShape& params_shape,
                     const GatherShapes& shapes, BadIndexAction action) {
  XlaBuilder* const builder = grad.builder();
  const PrimitiveType type = TypeOf(grad);
  const XlaOp zeros = ZerosOf(builder, sum_type, params_shape.dim_sizes());
  if (!shapes.geometry.has_output() || shapes.geometry.rows == 0) {
    return xla::ConvertElementType(zeros, type);
  }
  const Layout layout = LayoutOf(shapes, params_shape, indices_shape);
  xla::ScatterDimensionNumbers dims;
  layout.AddWindow(dims.mutable_update_window_dims());
  dims.add_inserted_window_dims(layout.axis);
  dims.add_scatter_dims_to_operand_dims(layout.axis);
  dims.set_index_vector_dim(layout.indices_rank);
  AddRange(0, layout.batch_dims, dims.mutable_input_batching_dims());
  AddRange(0, layout.batch_dims, dims.mutable_scatter_indices_batching_dims());
  // XLA drops what goes outside, which is what becomes of a bad index.
  const XlaOp rows = WithoutPadding(
      ResolveIndices(indices, shapes.geometry.rows, action).rows);
  const XlaOp updates = xla::ConvertElementType(
      WithBoundsAsSizes(grad, shapes.output_rank), sum_type);
  const XlaOp sums =
      xla::Scatter(zeros, rows, updates,
                   xla::CreateScalarAddComputation(sum_type, builder), dims);
  return xla::ConvertElementType(sums, type);
}

PrimitiveType PositionType(int64_t positions) {
  return positions > kMaxInt32 ? xla::S64 : xla::S32;
}

XlaOp Winners(XlaOp indices, int64_t positions, int64_t merged_rows) {
  XlaBuilder* const builder = indices.builder();
  const PrimitiveType type = PositionType(positions);
  const XlaOp nobody = xla::Broadcast(
      xla::ConstantR0WithType(builder, type, kNoWinner), {merged_rows});
  if (positions == 0 || merged_rows == 0) return nobody;
  xla::ScatterDimensionNumbers dims;
  dims.add_inserted_window_dims(0);
  dims.add_scatter_dims_to_operand_dims(0);
  dims.set_index_vector_dim(1);
  return xla::Scatter(
      nobody, ResolveIndices(indices, merged_rows, BadIndexAction::kZero).rows,
      xla::Iota(builder, type, positions),
      xla::CreateScalarMaxComputation(type, builder), dims);
}

XlaOp WithoutPadding(XlaOp rows) {
  XlaBuilder* const builder = rows.builder();
  return builder->ReportErrorOrReturn([&]() -> absl::StatusOr<XlaOp> {
    TF_ASSIGN_OR_RETURN(const xla::Shape shape, builder->GetShape(rows));
    XlaOp result = rows;
    for (int64_t i = 0; i < static_cast<int64_t>(shape.dimensions().size());
         ++i) {
      if (!shape.is_dynamic_dimension(i)) continue;
      const XlaOp size = xla::GetDimensionSize(rows, i);
      result = xla::RemoveDynamicDimension(result, i);
      const xla::Shape iota_shape =
          xla::ShapeUtil::MakeShape(xla::S32, shape.dimensions());
      const XlaOp is_inside = xla::Lt(xla::Iota(builder, iota_shape, i), size);
      result = xla::Select(
          is_inside, result,
          xla::Broadcast(xla::ScalarLike(rows, kZeroRow), shape.dimensions()));
    }
    return result;
  });
}

XlaOp WithBoundsAsSizes(XlaOp value, int rank) {
  XlaBuilder* const builder = value.builder();
  return builder->ReportErrorOrReturn([&]() -> absl::StatusOr<XlaOp> {
    TF_ASSIGN_OR_RETURN(const xla::Shape shape, builder->GetShape(value));
    XlaOp result = value;
    for (int i = 0; i < rank; ++i) {
      if (shape.is_dynamic_dimension(i)) {
        result = xla::RemoveDynamicDimension(result, i);
      }
    }
    return result;
  });
}

XlaOp WithSizesOf(XlaOp prototype, XlaOp value) {
  XlaBuilder* const builder = value.builder();
  return builder->ReportErrorOrReturn([&]() -> absl::StatusOr<XlaOp> {
    TF_ASSIGN_OR_RETURN(const xla::Shape shape, builder->GetShape(prototype));
    XlaOp result = value;
    for (int64_t i = 0; i < static_cast<int64_t>(shape.dimensions().size());
         ++i) {
      if (shape.is_dynamic_dimension(i)) {
        result = xla::SetDimensionSize(result,
                                       xla::GetDimensionSize(prototype, i), i);
      }
    }
    return result;
  });
}

XlaOp ZerosOf(XlaBuilder* builder, PrimitiveType type,
              absl::Span<const int64_t> dims) {
  return xla::Broadcast(xla::Zero(builder, type), dims);
}

PrimitiveType SumTypeOf(PrimitiveType type) {
  const bool is_short = xla::primitive_util::IsFloatingPointType(type) &&
                        xla::primitive_util::BitWidth(type) <= 16;
  return is_short ? xla::F32 : type;
}

absl::Span<const tensorflow::DataType> XlaDtypes() {
  return tensorflow::kCpuAllTypes;
}

}  // namespace gather_stitch
