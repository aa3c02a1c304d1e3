// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

#ifndef GATHER_STITCH_STOCK_STOCK_DTYPES_H_
#define GATHER_STITCH_STOCK_STOCK_DTYPES_H_

#include <vector>

#include "tensorflow/core/framework/types.h"

namespace gather_stitch {

// The dtypes for which stock has sums. Its ops would take quantised ones as
// well, but these have no sum without their scale.
inline std::vector<tensorflow::DataType> StockSumDtypes() {
  return {
      tensorflow::DT_INT8,      tensorflow::DT_UINT8,     tensorflow::DT_INT16,
      tensorflow::DT_UINT16,    tensorflow::DT_INT32,     tensorflow::DT_UINT32,
      tensorflow::DT_INT64,     tensorflow::DT_UINT64,    tensorflow::DT_HALF,
      tensorflow::DT_BFLOAT16,  tensorflow::DT_FLOAT,     tensorflow::DT_DOUBLE,
      tensorflow::DT_COMPLEX64, tensorflow::DT_COMPLEX128};
}

}  // namespace gather_stitch

#endif  // GATHER_STITCH_STOCK_STOCK_DTYPES_H_
