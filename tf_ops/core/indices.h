// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// Index dtypes, and the one recipe for an index outside its range.
//
//   ResolveIndex(index, rows, action) ==
//     index                                     where 0 <= index < rows
//     min(max(index, 0), rows - 1)              kClip, rows > 0
//     index modulo rows, in [0, rows)           kWrap, rows > 0
//     kZeroRow                                  kZero, and kZeroNegative where
//                                               index < 0
//     kBadRow                                   kFail, kZeroNegative elsewhere,
//                                               and kClip, kWrap where
//                                               rows == 0
//
// `rows` >= 0. Every value of every index dtype is legal, uint64 above 2^63
// included.

#ifndef GATHER_STITCH_CORE_INDICES_H_
#define GATHER_STITCH_CORE_INDICES_H_

#include <cstdint>
#include <type_traits>

#include "tf_ops/core/host_device.h"

namespace gather_stitch {

enum class IndexType : uint8_t {
  kInt8,
  kUint8,
  kInt16,
  kUint16,
  kInt32,
  kUint32,
  kInt64,
  kUint64,
};

// What becomes of an index outside [0, rows). The ops' DEFAULT policy is kFail
// on a CPU and kZero on a GPU: the adapter chooses. kZeroNegative is what
// segment sums do.
enum class BadIndexAction : uint8_t {
  kFail,
  kZero,
  kClip,
  kWrap,
  kZeroNegative,
};

inline constexpr int64_t kZeroRow = -1;
inline constexpr int64_t kBadRow = -2;

// ResolveIndex of the index whose 64 bits, sign-extended, are `bits`.
GATHER_STITCH_HOST_DEVICE inline int64_t ResolveIndexBits(
    uint64_t bits, bool is_negative, int64_t rows, BadIndexAction action) {
  // One unsigned comparison covers both bounds: a negative index is larger than
  // any row count.
  if (bits < static_cast<uint64_t>(rows)) return static_cast<int64_t>(bits);
  if (action == BadIndexAction::kZero) return kZeroRow;
  if (action == BadIndexAction::kZeroNegative && is_negative) return kZeroRow;
  if (action == BadIndexAction::kFail ||
      action == BadIndexAction::kZeroNegative || rows == 0) {
    return kBadRow;
  }
  if (action == BadIndexAction::kClip) return is_negative ? 0 : rows - 1;
  // Of a negative index ~bits is -index - 1, which counts from the last row.
  const int64_t remainder = static_cast<int64_t>((is_negative ? ~bits : bits) %
                                                 static_cast<uint64_t>(rows));
  return is_negative ? rows - 1 - remainder : remainder;
}

template <typename Index>
GATHER_STITCH_HOST_DEVICE inline int64_t ResolveIndex(Index index, int64_t rows,
                                                      BadIndexAction action) {
  bool is_negative = false;
  if constexpr (std::is_signed_v<Index>) is_negative = index < 0;
  return ResolveIndexBits(static_cast<uint64_t>(static_cast<int64_t>(index)),
                          is_negative, rows, action);
}

// Calls f(Index{}) with the C++ type of `type`, so that a loop is compiled once
// for each index dtype.
template <typename F>
decltype(auto) VisitIndexType(IndexType type, F&& f) {
  switch (type) {
    case IndexType::kInt8:
      return f(int8_t{});
    case IndexType::kUint8:
      return f(uint8_t{});
    case IndexType::kInt16:
      return f(int16_t{});
    case IndexType::kUint16:
      return f(uint16_t{});
    case IndexType::kInt32:
      return f(int32_t{});
    case IndexType::kUint32:
      return f(uint32_t{});
    case IndexType::kInt64:
      return f(int64_t{});
    case IndexType::kUint64:
      break;
  }
  return f(uint64_t{});
}

}  // namespace gather_stitch

#endif  // GATHER_STITCH_CORE_INDICES_H_
