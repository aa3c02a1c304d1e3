// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// A block of indices, read, checked and turned into row numbers before its rows
// are touched: the check is a vector loop, and what follows runs on numbers
// that nobody else can change.

#ifndef GATHER_STITCH_CORE_RESOLVE_BLOCK_H_
#define GATHER_STITCH_CORE_RESOLVE_BLOCK_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "tf_ops/core/indices.h"

namespace gather_stitch {

// The row numbers of a block take 4 KiB, which stay in the L1 cache.
inline constexpr int64_t kBlockIndices = 512;

struct ResolvedBlock {
  int64_t first_bad = -1;  // an offset into the block
  int64_t bad_value = 0;
  bool has_zero_rows = false;

  bool is_bad() const { return first_bad >= 0; }
};

namespace resolve_internal {

// resolved[i] = base + indices[i]; true where all are in [0, rows).
template <typename Index>
bool ResolveInRange(const Index* __restrict indices, int64_t count,
                    int64_t rows, int64_t base, int64_t* __restrict resolved) {
  using Signed =
      std::conditional_t<(sizeof(Index) > 4 || std::is_same_v<Index, uint32_t>),
                         int64_t, int32_t>;
  using Unsigned = std::make_unsigned_t<Signed>;
  const Unsigned last_row = static_cast<Unsigned>(
      std::min<int64_t>(rows - 1, std::numeric_limits<Signed>::max()));
  // Both an index below zero and one above last_row set the sign bit.
  Unsigned outside = 0;
  for (int64_t i = 0; i < count; ++i) {
    const Signed index = static_cast<Signed>(indices[i]);
    const Unsigned bits = static_cast<Unsigned>(index);
    outside |= bits | (last_row - bits);
    resolved[i] = static_cast<int64_t>(static_cast<uint64_t>(base) +
                                       static_cast<uint64_t>(index));
  }
  return static_cast<Signed>(outside) >= 0;
}

}  // namespace resolve_internal

// resolved[i] = base + ResolveIndex(indices[i], rows, action), and kZeroRow
// where that has no row, for count <= kBlockIndices indices. Where the block is
// bad its row numbers are set before the bad one and unspecified from there on.
template <typename Index>
ResolvedBlock ResolveBlock(const Index* indices, int64_t count, int64_t rows,
                           int64_t base, BadIndexAction action,
                           int64_t* resolved) {
  ResolvedBlock block;
  if (resolve_internal::ResolveInRange(indices, count, rows, base, resolved)) {
    return block;
  }
  // Rare, so it reads the indices again: only what is read here counts.
  for (int64_t i = 0; i < count; ++i) {
    const Index index = indices[i];
    const int64_t row = ResolveIndex(index, rows, action);
    if (row == kBadRow) {
      block.first_bad = i;
      block.bad_value = static_cast<int64_t>(index);
      return block;
    }
    if (row == kZeroRow) {
      block.has_zero_rows = true;
      resolved[i] = kZeroRow;
    } else {
      resolved[i] = base + row;
    }
  }
  return block;
}

}  // namespace gather_stitch

#endif  // GATHER_STITCH_CORE_RESOLVE_BLOCK_H_
