// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

#include "tf_ops/ops/sum_dtypes.h"

#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/types.h"

namespace gather_stitch {

absl::Status SumOf(tensorflow::DataType dtype, Sum* sum) {
  switch (dtype) {
    case tensorflow::DT_INT8:
    case tensorflow::DT_UINT8:
    case tensorflow::DT_QINT8:
    case tensorflow::DT_QUINT8:
      *sum = {SumType::kInt8, 1};
      return absl::OkStatus();
    case tensorflow::DT_INT16:
    case tensorflow::DT_UINT16:
      *sum = {SumType::kInt16, 1};
      return absl::OkStatus();
    case tensorflow::DT_INT32:
    case tensorflow::DT_UINT32:
    case tensorflow::DT_QINT32:
      *sum = {SumType::kInt32, 1};
      return absl::OkStatus();
    case tensorflow::DT_INT64:
    case tensorflow::DT_UINT64:
      *sum = {SumType::kInt64, 1};
      return absl::OkStatus();
    case tensorflow::DT_FLOAT:
      *sum = {SumType::kFloat32, 1};
      return absl::OkStatus();
    case tensorflow::DT_DOUBLE:
      *sum = {SumType::kFloat64, 1};
      return absl::OkStatus();
    case tensorflow::DT_COMPLEX64:
      *sum = {SumType::kFloat32, 2};
      return absl::OkStatus();
    case tensorflow::DT_COMPLEX128:
      *sum = {SumType::kFloat64, 2};
      return absl::OkStatus();
    case tensorflow::DT_HALF:
      *sum = {SumType::kHalf, 1};
      return absl::OkStatus();
    case tensorflow::DT_BFLOAT16:
      *sum = {SumType::kBfloat16, 1};
      return absl::OkStatus();
    case tensorflow::DT_FLOAT8_E5M2:
      *sum = {SumType::kFloat8E5m2, 1};
      return absl::OkStatus();
    case tensorflow::DT_FLOAT8_E4M3FN:
      *sum = {SumType::kFloat8E4m3fn, 1};
      return absl::OkStatus();
    case tensorflow::DT_FLOAT8_E4M3FNUZ:
      *sum = {SumType::kFloat8E4m3fnuz, 1};
      return absl::OkStatus();
    case tensorflow::DT_FLOAT8_E4M3B11FNUZ:
      *sum = {SumType::kFloat8E4m3b11fnuz, 1};
      return absl::OkStatus();
    case tensorflow::DT_FLOAT8_E5M2FNUZ:
      *sum = {SumType::kFloat8E5m2fnuz, 1};
      return absl::OkStatus();
    default:
      return absl::InvalidArgumentError(absl::StrCat(
          "there is no sum of ", tensorflow::DataTypeString(dtype)));
  }
}

}  // namespace gather_stitch
