// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// What the XLA kernels of both op families are made of: one gather and one
// scatter of rows, straight on the dimensions that the ops have, and the
// policies as XLA instructions. Nothing here knows an op.
//
// XLA shapes are static or bounded: the size of a bounded dimension is known at
// run time only. A shape in TensorFlow's form has the bounds.

#ifndef GATHER_STITCH_XLA_LOWERING_H_
#define GATHER_STITCH_XLA_LOWERING_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "tensorflow/compiler/tf2xla/xla_op_kernel.h"
#include "tensorflow/compiler/tf2xla/xla_op_registry.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tf_ops/core/gather_geometry.h"
#include "tf_ops/core/indices.h"
#include "xla/hlo/builder/xla_builder.h"
#include "xla/xla_data.pb.h"

namespace gather_stitch {

// The attr bad_indices_policy of an op that is compiled.
class XlaPolicy {
 public:
  explicit XlaPolicy(tensorflow::OpKernelConstruction* ctx);

  // What becomes of a bad index, DEFAULT being kZero. ERROR is Unimplemented:
  // a compiled program can not fail for a value, and this is the code for which
  // an auto-clustered model falls back to the CPU kernel.
  absl::Status GetAction(BadIndexAction* action) const;

 private:
  std::string name_;
};

// The shape of an input, with the bounds of bounded dimensions.
absl::Status InputBounds(tensorflow::XlaOpKernelContext* ctx, int input,
                         tensorflow::TensorShape* shape);

// Indices into an axis of `rows` >= 1 rows, by an action that is not kFail; or,
// where `size` is valid, into one of `size` rows, s32, of which `rows` is the
// bound. No index is good where `size` is 0.
struct ResolvedIndices {
  // s32 or s64, of the shape of the indices; outside of [0, rows) where bad.
  xla::XlaOp rows;
  // Where rows is in [0, rows); invalid where the action leaves none outside.
  xla::XlaOp is_good;
};

ResolvedIndices ResolveIndices(xla::XlaOp indices, int64_t rows,
                               BadIndexAction action, xla::XlaOp size = {});

// The output of a gather, of one `Gather` instruction; zeros where an index is
// bad.
xla::XlaOp GatherRows(xla::XlaOp params,
                      const tensorflow::TensorShape& params_shape,
                      xla::XlaOp indices,
                      const tensorflow::TensorShape& indices_shape,
                      const GatherShapes& shapes, BadIndexAction action);

// Its transpose, of one `Scatter` instruction: sums in `sum_type`, rounded once
// to the type of grad, which is the elements' type of the result.
xla::XlaOp ScatterAddRows(xla::XlaOp grad, xla::PrimitiveType sum_type,
                          xla::XlaOp indices,
                          const tensorflow::TensorShape& indices_shape,
                          const tensorflow::TensorShape& params_shape,
                          const GatherShapes& shapes, BadIndexAction action);

// s32 where it is wide enough for so many positions, else s64.
xla::PrimitiveType PositionType(int64_t positions);

// winners[r] == the largest position p with indices[p] == r, or kNoWinner, of
// PositionType: for indices [positions] of s32 or s64, of one scatter-max,
// since XLA leaves the order of a scatter's duplicates open.
xla::XlaOp Winners(xla::XlaOp indices, int64_t positions, int64_t merged_rows);

// `rows` with kZeroRow for the elements past the size of a bounded dimension,
// and with the bounds as sizes. Nothing is done to a static shape.
xla::XlaOp WithoutPadding(xla::XlaOp rows);

// `value` with the bounds of its first `rank` dimensions as sizes; what is past
// the sizes that they had is unspecified.
xla::XlaOp WithBoundsAsSizes(xla::XlaOp value, int rank);

// `value` with the sizes that the dimensions of `prototype` have at run time;
// `value` has at least the rank of `prototype`, and its bounds.
xla::XlaOp WithSizesOf(xla::XlaOp prototype, xla::XlaOp value);

// Zeros of a shape.
xla::XlaOp ZerosOf(xla::XlaBuilder* builder, xla::PrimitiveType type,
                   absl::Span<const int64_t> dims);

// float32 for the short floats, else the type itself.
xla::PrimitiveType SumTypeOf(xla::PrimitiveType type);

// Registers an XLA kernel for every backend, whether XLA was used before in
// this process or is used later: `builder` is the argument of REGISTER_XLA_OP,
// `name` the op, and `attr` its attr for the dtype of the elements.
//
// What REGISTER_XLA_OP registers becomes kernels when XLA is first used. A
// library loaded after that has to register the kernels of the devices itself,
// with a priority, since the others may come as well.
#define GATHER_STITCH_REGISTER_XLA(name, attr, builder, ...)          \
  REGISTER_XLA_OP(builder, __VA_ARGS__);                              \
  REGISTER_KERNEL_BUILDER(Name(name)                                  \
                              .Device(tensorflow::DEVICE_CPU_XLA_JIT) \
                              .TypeConstraint(attr, XlaDtypes())      \
                              .Priority(1),                           \
                          __VA_ARGS__);                               \
  REGISTER_KERNEL_BUILDER(Name(name)                                  \
                              .Device(tensorflow::DEVICE_GPU_XLA_JIT) \
                              .TypeConstraint(attr, XlaDtypes())      \
                              .Priority(1),                           \
                          __VA_ARGS__)

// Every dtype that XLA has.
absl::Span<const tensorflow::DataType> XlaDtypes();

}  // namespace gather_stitch

#endif  // GATHER_STITCH_XLA_LOWERING_H_
