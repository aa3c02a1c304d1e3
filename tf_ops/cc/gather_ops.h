// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// The gather ops for C++ programs, in the manner of tensorflow::ops: a
// constructor adds the op to the graph of a scope. The op library is loaded by
// the first one that is called (tf_ops/cc/loader.h says from where). What is
// wrong, be it an argument or the library, becomes the status of the scope, and
// the outputs stay empty.

#ifndef GATHER_STITCH_CC_GATHER_OPS_H_
#define GATHER_STITCH_CC_GATHER_OPS_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "tensorflow/cc/framework/ops.h"
#include "tensorflow/cc/framework/scope.h"

namespace gather_stitch {
namespace ops {

/// Gathers slices of `params` along `axis` at `indices`.
///
/// The output has the shape `params.shape[:axis] + indices.shape[batch_dims:] +
/// params.shape[axis + 1:]`, where
///
/// ```
///     // Scalar indices (the output has the rank of params less one).
///     output[a_0, ..., a_n, b_0, ..., b_n] =
///         params[a_0, ..., a_n, indices, b_0, ..., b_n]
///
///     // Vector indices (the output has the rank of params).
///     output[a_0, ..., a_n, i, b_0, ..., b_n] =
///         params[a_0, ..., a_n, indices[i], b_0, ..., b_n]
///
///     // Indices of higher rank (rank(params) + rank(indices) - 1).
///     output[a_0, ..., a_n, i, ..., j, b_0, ..., b_n] =
///         params[a_0, ..., a_n, indices[i, ..., j], b_0, ..., b_n]
/// ```
///
/// With `batch_dims`, the first dimensions of `params` and `indices` are the
/// same and each batch has indices of its own:
///
/// ```
///     output[batch, a, i, ..., j, b] = params[batch, a, indices[batch, i, ...,
///     j], b]
/// ```
///
/// Its gradient in C++ is dense, made by one GatherV2Grad.
///
/// Args:
/// * scope: A Scope object
/// * params: The tensor to gather from, of any dtype and at least one
/// dimension.
/// * indices: Integers of 8 to 64 bits, signed or not, of any shape.
/// * axis: A scalar int32 or int64 in `[-rank(params), rank(params))`, not
/// below batch_dims.
///
/// Optional attributes (see `Attrs`):
/// * batch_dims: In `[-rank(indices), rank(indices)]`.
/// * bad_indices_policy: What an index outside `[0, params.shape[axis])` gives.
/// DEFAULT: an error on a CPU, zeros on a GPU. ERROR: an error. IGNORE: zeros,
/// and no gradient. CLIP: the nearest slice, WRAP: the slice at the index
/// modulo the size of the axis; both get the gradient.
/// * gradient: AUTO, DENSE or SPARSE: the form of the gradient in Python, where
/// a saved graph may be differentiated. In C++ all three are dense, and SPARSE
/// is refused unless axis is the constant 0, without batch_dims.
///
/// Returns:
/// * `Output`: The gathered slices.
class GatherV2 {
 public:
  /// Optional attribute setters for GatherV2
  struct Attrs {
    /// Defaults to 0
    TF_MUST_USE_RESULT Attrs BatchDims(int64_t x) const {
      Attrs ret = *this;
      ret.batch_dims_ = x;
      return ret;
    }

    /// Defaults to "DEFAULT"
    TF_MUST_USE_RESULT Attrs BadIndicesPolicy(absl::string_view x) const {
      Attrs ret = *this;
      ret.bad_indices_policy_ = std::string(x);
      return ret;
    }

    /// Defaults to "AUTO"
    TF_MUST_USE_RESULT Attrs Gradient(absl::string_view x) const {
      Attrs ret = *this;
      ret.gradient_ = std::string(x);
      return ret;
    }

    int64_t batch_dims_ = 0;
    std::string bad_indices_policy_ = "DEFAULT";
    std::string gradient_ = "AUTO";
  };

  GatherV2(const ::tensorflow::Scope& scope, ::tensorflow::Input params,
           ::tensorflow::Input indices, ::tensorflow::Input axis);
  GatherV2(const ::tensorflow::Scope& scope, ::tensorflow::Input params,
           ::tensorflow::Input indices, ::tensorflow::Input axis,
           const GatherV2::Attrs& attrs);
  operator ::tensorflow::Output() const { return output; }
  operator ::tensorflow::Input() const { return output; }
  ::tensorflow::Node* node() const { return output.node(); }

  static Attrs BatchDims(int64_t x) { return Attrs().BatchDims(x); }
  static Attrs BadIndicesPolicy(absl::string_view x) {
    return Attrs().BadIndicesPolicy(x);
  }
  static Attrs Gradient(absl::string_view x) { return Attrs().Gradient(x); }

  ::tensorflow::Operation operation;
  ::tensorflow::Output output;
};

/// Gathers slices of a variable along `axis` at `indices`, copying nothing
/// else.
///
/// The output is that of a GatherV2 whose params are the value of the variable.
/// The variable is locked against assignments until the slices are copied. The
/// gradient with respect to `resource` is the dense one of the variable, as
/// GatherV2's.
///
/// Args:
/// * scope: A Scope object
/// * resource: The handle of a variable of at least one dimension.
/// * indices: As in GatherV2.
/// * axis: As in GatherV2.
/// * dtype: The dtype of the variable.
///
/// Optional attributes (see `Attrs`): those of GatherV2.
///
/// Returns:
/// * `Output`: The gathered slices.
class ResourceGather {
 public:
  /// Optional attribute setters for ResourceGather
  using Attrs = GatherV2::Attrs;

  ResourceGather(const ::tensorflow::Scope& scope, ::tensorflow::Input resource,
                 ::tensorflow::Input indices, ::tensorflow::Input axis,
                 ::tensorflow::DataType dtype);
  ResourceGather(const ::tensorflow::Scope& scope, ::tensorflow::Input resource,
                 ::tensorflow::Input indices, ::tensorflow::Input axis,
                 ::tensorflow::DataType dtype,
                 const ResourceGather::Attrs& attrs);
  operator ::tensorflow::Output() const { return output; }
  operator ::tensorflow::Input() const { return output; }
  ::tensorflow::Node* node() const { return output.node(); }

  static Attrs BatchDims(int64_t x) { return Attrs().BatchDims(x); }
  static Attrs BadIndicesPolicy(absl::string_view x) {
    return Attrs().BadIndicesPolicy(x);
  }
  static Attrs Gradient(absl::string_view x) { return Attrs().Gradient(x); }

  ::tensorflow::Operation operation;
  ::tensorflow::Output output;
};

/// The dense gradient of GatherV2: sums of the slices of `grad`, in one pass.
///
/// ```
///     params_grad[a, r, b] = sum over i with indices[i] == r of grad[a, i, b]
/// ```
///
/// A bad index is what it was in the forward op: CLIP and WRAP add to the slice
/// that they read, the other policies add nowhere. half, bfloat16 and float8
/// are summed in float32 and rounded once.
///
/// Args:
/// * scope: A Scope object
/// * grad: Of the shape of the forward op's output, of a numeric dtype or
/// float8.
/// * indices: The indices of the forward op.
/// * params_shape: A vector of int64, the shape of the forward op's params.
/// * axis: The axis of the forward op.
///
/// Optional attributes (see `Attrs`):
/// * batch_dims, bad_indices_policy: As in the forward op.
///
/// Returns:
/// * `Output`: The gradient of params, of the shape `params_shape`.
class GatherV2Grad {
 public:
  /// Optional attribute setters for GatherV2Grad
  struct Attrs {
    /// Defaults to 0
    TF_MUST_USE_RESULT Attrs BatchDims(int64_t x) const {
      Attrs ret = *this;
      ret.batch_dims_ = x;
      return ret;
    }

    /// Defaults to "DEFAULT"
    TF_MUST_USE_RESULT Attrs BadIndicesPolicy(absl::string_view x) const {
      Attrs ret = *this;
      ret.bad_indices_policy_ = std::string(x);
      return ret;
    }

    int64_t batch_dims_ = 0;
    std::string bad_indices_policy_ = "DEFAULT";
  };

  GatherV2Grad(const ::tensorflow::Scope& scope, ::tensorflow::Input grad,
               ::tensorflow::Input indices, ::tensorflow::Input params_shape,
               ::tensorflow::Input axis);
  GatherV2Grad(const ::tensorflow::Scope& scope, ::tensorflow::Input grad,
               ::tensorflow::Input indices, ::tensorflow::Input params_shape,
               ::tensorflow::Input axis, const GatherV2Grad::Attrs& attrs);
  operator ::tensorflow::Output() const { return params_grad; }
  operator ::tensorflow::Input() const { return params_grad; }
  ::tensorflow::Node* node() const { return params_grad.node(); }

  static Attrs BatchDims(int64_t x) { return Attrs().BatchDims(x); }
  static Attrs BadIndicesPolicy(absl::string_view x) {
    return Attrs().BadIndicesPolicy(x);
  }

  ::tensorflow::Operation operation;
  ::tensorflow::Output params_grad;
};

/// The gradient of a GatherV2 along axis 0 as slices of the table.
///
/// ```
///     values[k, ...] = sum over i with slots[i] == k of grad[i, ...]
/// ```
///
/// Args:
/// * scope: A Scope object
/// * grad: Of the shape of the forward op's output, `indices.shape + inner`.
/// * indices: The indices of the forward op.
/// * params_rows: A scalar int64, the number of rows of the forward op's
/// params.
///
/// Optional attributes (see `Attrs`):
/// * bad_indices_policy: As in the forward op.
/// * unique: If true, rows are sorted and distinct; else there is one for each
/// index, in the order of indices.
///
/// Returns:
/// * `Output` values: `[k] + inner`, a slice for each of `rows`.
/// * `Output` rows: `[k]`, int64, rows of the table: clipped or wrapped by the
/// policy; where an index has no gradient it is left out.
/// * `Output` slots: `indices.shape`, int64, the slice that each index went to,
/// -1 where it was left out.
class GatherV2SparseGrad {
 public:
  /// Optional attribute setters for GatherV2SparseGrad
  struct Attrs {
    /// Defaults to "DEFAULT"
    TF_MUST_USE_RESULT Attrs BadIndicesPolicy(absl::string_view x) const {
      Attrs ret = *this;
      ret.bad_indices_policy_ = std::string(x);
      return ret;
    }

    /// Defaults to true
    TF_MUST_USE_RESULT Attrs Unique(bool x) const {
      Attrs ret = *this;
      ret.unique_ = x;
      return ret;
    }

    std::string bad_indices_policy_ = "DEFAULT";
    bool unique_ = true;
  };

  GatherV2SparseGrad(const ::tensorflow::Scope& scope, ::tensorflow::Input grad,
                     ::tensorflow::Input indices,
                     ::tensorflow::Input params_rows);
  GatherV2SparseGrad(const ::tensorflow::Scope& scope, ::tensorflow::Input grad,
                     ::tensorflow::Input indices,
                     ::tensorflow::Input params_rows,
                     const GatherV2SparseGrad::Attrs& attrs);

  static Attrs BadIndicesPolicy(absl::string_view x) {
    return Attrs().BadIndicesPolicy(x);
  }
  static Attrs Unique(bool x) { return Attrs().Unique(x); }

  ::tensorflow::Operation operation;
  ::tensorflow::Output values;
  ::tensorflow::Output rows;
  ::tensorflow::Output slots;
};

}  // namespace ops
}  // namespace gather_stitch

#endif  // GATHER_STITCH_CC_GATHER_OPS_H_
