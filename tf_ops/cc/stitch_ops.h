// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// The stitch ops for C++ programs. tf_ops/cc/gather_ops.h says what the classes
// have in common.

#ifndef GATHER_STITCH_CC_STITCH_OPS_H_
#define GATHER_STITCH_CC_STITCH_OPS_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"
#include "tensorflow/cc/framework/ops.h"
#include "tensorflow/cc/framework/scope.h"

namespace gather_stitch {
namespace ops {

/// Interleaves the rows of the `data` tensors into one tensor.
///
/// ```
///     merged[indices[m][i, ..., j], ...] = data[m][i, ..., j, ...]
/// ```
///
/// that is
///
/// ```
///     // Scalar indices:
///     merged[indices[m], ...] = data[m][...]
///
///     // Vector indices:
///     merged[indices[m][i], ...] = data[m][i, ...]
/// ```
///
/// `data[m].shape` is `indices[m].shape + constant`, with the same `constant`
/// for every m, and `merged.shape` is `[max(indices) + 1] + constant`, `[0] +
/// constant` where there is no index. For example
///
/// ```
///     indices = {6, {4, 1}, {{5, 2}, {0, 3}}}
///     data = {{61, 62},
///             {{41, 42}, {11, 12}},
///             {{{51, 52}, {21, 22}}, {{1, 2}, {31, 32}}}}
///     merged = {{1, 2}, {11, 12}, {21, 22}, {31, 32}, {41, 42}, {51, 52}, {61,
///     62}}
/// ```
///
/// Where an index occurs more than once the last in the order (m, i, ..., j)
/// wins, at any number of threads, and its row is whole; rows that no index
/// names are zeros. The gradient of a row that was overwritten is zero.
///
/// Args:
/// * scope: A Scope object
/// * indices: At least one tensor of int32 or int64, none of them negative.
/// * data: As many tensors of one dtype, any dtype.
///
/// Returns:
/// * `Output`: The merged tensor.
class ParallelDynamicStitch {
 public:
  ParallelDynamicStitch(const ::tensorflow::Scope& scope,
                        ::tensorflow::InputList indices,
                        ::tensorflow::InputList data);
  operator ::tensorflow::Output() const { return merged; }
  operator ::tensorflow::Input() const { return merged; }
  ::tensorflow::Node* node() const { return merged.node(); }

  ::tensorflow::Operation operation;
  ::tensorflow::Output merged;
};

/// ParallelDynamicStitch into a given number of rows.
///
/// `merged.shape` is `[merged_rows] + constant`, so that it does not depend on
/// the indices.
///
/// Args:
/// * scope: A Scope object
/// * indices: At least one tensor of int32 or int64.
/// * data: As many tensors of one dtype, any dtype.
/// * merged_rows: A scalar int32 or int64, the number of rows; not negative.
///
/// Optional attributes (see `Attrs`):
/// * bad_indices_policy: What an index outside `[0, merged_rows)` gives.
/// DEFAULT: an error on a CPU; on a GPU its row is dropped. ERROR: an error.
/// IGNORE: its row is dropped.
///
/// Returns:
/// * `Output`: The merged tensor, zeros where no index names a row.
class ParallelDynamicStitchV2 {
 public:
  /// Optional attribute setters for ParallelDynamicStitchV2
  struct Attrs {
    /// Defaults to "DEFAULT"
    TF_MUST_USE_RESULT Attrs BadIndicesPolicy(absl::string_view x) const {
      Attrs ret = *this;
      ret.bad_indices_policy_ = std::string(x);
      return ret;
    }

    std::string bad_indices_policy_ = "DEFAULT";
  };

  ParallelDynamicStitchV2(const ::tensorflow::Scope& scope,
                          ::tensorflow::InputList indices,
                          ::tensorflow::InputList data,
                          ::tensorflow::Input merged_rows);
  ParallelDynamicStitchV2(const ::tensorflow::Scope& scope,
                          ::tensorflow::InputList indices,
                          ::tensorflow::InputList data,
                          ::tensorflow::Input merged_rows,
                          const ParallelDynamicStitchV2::Attrs& attrs);
  operator ::tensorflow::Output() const { return merged; }
  operator ::tensorflow::Input() const { return merged; }
  ::tensorflow::Node* node() const { return merged.node(); }

  static Attrs BadIndicesPolicy(absl::string_view x) {
    return Attrs().BadIndicesPolicy(x);
  }

  ::tensorflow::Operation operation;
  ::tensorflow::Output merged;
};

/// The gradient of ParallelDynamicStitch and of ParallelDynamicStitchV2.
///
/// ```
///     data_grad[m][i, ..., j, ...] = grad[indices[m][i, ..., j], ...]
/// ```
///
/// where that row was written by (m, i, ..., j); zeros where a later one
/// overwrote it, or where the index is outside of grad.
///
/// Args:
/// * scope: A Scope object
/// * grad: The gradient of the merged tensor, of at least one dimension.
/// * indices: The indices of the forward op.
///
/// Returns:
/// * `OutputList`: For each m a tensor of shape `indices[m].shape +
/// grad.shape[1:]`.
class ParallelDynamicStitchGrad {
 public:
  ParallelDynamicStitchGrad(const ::tensorflow::Scope& scope,
                            ::tensorflow::Input grad,
                            ::tensorflow::InputList indices);
  /// Empty where m is too large or the scope has an error.
  ::tensorflow::Output operator[](size_t m) const {
    return m < data_grad.size() ? data_grad[m] : ::tensorflow::Output();
  }

  ::tensorflow::Operation operation;
  ::tensorflow::OutputList data_grad;
};

}  // namespace ops
}  // namespace gather_stitch

#endif  // GATHER_STITCH_CC_STITCH_OPS_H_
