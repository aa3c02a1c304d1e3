// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// The indices of an op, as kernels read them. Kernels are compiled for the two
// dtypes that nearly everybody uses, and once more for any of them.

#ifndef GATHER_STITCH_CORE_GPU_INDEX_LIST_H_
#define GATHER_STITCH_CORE_GPU_INDEX_LIST_H_

#include <cstdint>

#include "tf_ops/core/gpu/device.h"
#include "tf_ops/core/indices.h"

namespace gather_stitch {
namespace gpu {

template <typename Index>
struct IndexList {
  const Index* indices;

  // As ResolveIndex, of an index that is read once.
  GATHER_STITCH_DEVICE int64_t Resolve(uint64_t position, int64_t rows,
                                       BadIndexAction action) const {
    return ResolveIndex(LoadIndex(indices + position), rows, action);
  }
  // Of a uint64: the same 64 bits.
  GATHER_STITCH_DEVICE int64_t Value(uint64_t position) const {
    return static_cast<int64_t>(LoadIndex(indices + position));
  }
};

// The dtype is a number here, on which all threads agree.
struct AnyIndexList {
  const void* indices;
  IndexType type;

  template <typename Index>
  GATHER_STITCH_DEVICE IndexList<Index> As() const {
    return {static_cast<const Index*>(indices)};
  }

  GATHER_STITCH_DEVICE int64_t Resolve(uint64_t position, int64_t rows,
                                       BadIndexAction action) const {
    const int64_t value = Value(position);
    return ResolveIndexBits(static_cast<uint64_t>(value),
                            type != IndexType::kUint64 && value < 0, rows,
                            action);
  }

  GATHER_STITCH_DEVICE int64_t Value(uint64_t position) const {
    switch (type) {
      case IndexType::kInt8:
        return As<int8_t>().Value(position);
      case IndexType::kUint8:
        return As<uint8_t>().Value(position);
      case IndexType::kInt16:
        return As<int16_t>().Value(position);
      case IndexType::kUint16:
        return As<uint16_t>().Value(position);
      case IndexType::kInt32:
        return As<int32_t>().Value(position);
      case IndexType::kUint32:
        return As<uint32_t>().Value(position);
      default:
        return As<int64_t>().Value(position);
    }
  }
};

// Calls f(list).
template <typename F>
decltype(auto) VisitIndexList(const void* indices, IndexType type, F&& f) {
  switch (type) {
    case IndexType::kInt32:
      return f(IndexList<int32_t>{static_cast<const int32_t*>(indices)});
    case IndexType::kInt64:
      return f(IndexList<int64_t>{static_cast<const int64_t*>(indices)});
    default:
      return f(AnyIndexList{indices, type});
  }
}

}  // namespace gpu
}  // namespace gather_stitch

#endif  // GATHER_STITCH_CORE_GPU_INDEX_LIST_H_
