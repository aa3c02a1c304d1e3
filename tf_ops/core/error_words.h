// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// The words of the errors that are not shape rules of a forward op, the same in
// a shape function and in a kernel, on every device. The words are stock
// TensorFlow's where stock has the error.

#ifndef GATHER_STITCH_CORE_ERROR_WORDS_H_
#define GATHER_STITCH_CORE_ERROR_WORDS_H_

#include <cstdint>
#include <string>

#include "tf_ops/core/indices.h"
#include "tf_ops/core/outcome.h"
#include "tf_ops/core/shape_view.h"

namespace gather_stitch {

// "indices[2,1] = 99 is not in [0, 5)"
std::string GatherIndexError(const Outcome& bad_index, ShapeView indices,
                             IndexType index_type, int64_t rows);

// Where there is no row to clip or wrap an index to, which a GPU knows without
// a look at the indices: "indices[0,0] is not in [0, 0)", else "".
std::string NoRowsError(BadIndexAction action, ShapeView indices, int64_t rows);

// "indices[1][2] = -3 is not in [0, 9)", for input 1 whose shape is `indices`.
// Where the number of rows follows from the indices, `merged_rows` is
// INT64_MAX.
std::string StitchIndexError(const Outcome& bad_index, ShapeView indices,
                             int64_t merged_rows);

// The checks of the inputs of the gradient ops: "" where the rule holds, or may
// hold where a rank or a dimension is unknown.

// grad.shape == gathered, the shape of the forward op's output.
std::string GatherGradShapeError(ShapeView grad, ShapeView gathered);

// grad.shape[:rank(indices)] == indices.shape
std::string SparseGradShapeError(ShapeView grad, ShapeView indices);

// A count that is an input of an op: "merged_rows = -1 must not be negative".
std::string NegativeCountError(const char* input_name, int64_t count);

// Each of params_shape[0..rank) is >= 0, as it has to be at run time.
std::string ParamsShapeError(ShapeView params_shape);

}  // namespace gather_stitch

#endif  // GATHER_STITCH_CORE_ERROR_WORDS_H_
