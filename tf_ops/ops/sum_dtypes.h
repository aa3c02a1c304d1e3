// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// The dtypes that the gradient ops sum: every numeric one and float8.
// TensorFlow's grammar of attrs has no name for float8, so the ops' attr T is
// any type and this is the list, for shape functions and kernels alike.

#ifndef GATHER_STITCH_OPS_SUM_DTYPES_H_
#define GATHER_STITCH_OPS_SUM_DTYPES_H_

#include <cstdint>

#include "absl/status/status.h"
#include "tensorflow/core/framework/types.pb.h"
#include "tf_ops/core/gather_grad.h"

namespace gather_stitch {

// How elements of a dtype are summed: `lanes` sums of type `type` an element.
struct Sum {
  SumType type;
  int64_t lanes;
};

// InvalidArgument for a dtype that has no sum.
absl::Status SumOf(tensorflow::DataType dtype, Sum* sum);

}  // namespace gather_stitch

#endif  // GATHER_STITCH_OPS_SUM_DTYPES_H_
