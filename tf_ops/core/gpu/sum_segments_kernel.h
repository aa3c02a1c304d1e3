// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// Sums of sorted rows, in an order that the rows alone determine.
//
// Terms are in the order of their keys, those with one key make a segment. They
// are cut into tiles of kTileIndices, and a segment at the ends of tiles into
// pieces: its head, which starts it, and continuations, which start a tile.
//
//   SumContinuations   adds up each continuation. The sums, one a tile, are
//                      the terms of the next level, where a segment is again
//                      in one stretch, and so on until a tile holds all.
//   SumSegments        adds to the head of each segment what the levels above
//                      have of it: the head of the continuations, the head of
//                      their continuations, ...
//
// Each term is read once, no thread adds more than kTileIndices terms a level,
// and however long a segment is, there are as many threads for it as for as
// many short ones.

#ifndef GATHER_STITCH_CORE_GPU_SUM_SEGMENTS_KERNEL_H_
#define GATHER_STITCH_CORE_GPU_SUM_SEGMENTS_KERNEL_H_

#include <cstdint>

#include "tf_ops/core/gather_grad.h"
#include "tf_ops/core/gpu/device.h"
#include "tf_ops/core/gpu/fast_divider.h"
#include "tf_ops/core/gpu/sum_types.h"

namespace gather_stitch {
namespace gpu {

inline constexpr uint64_t kTileIndices = 32;
inline constexpr uint64_t kNoKey = UINT64_MAX;
// With tiles of 32 indices: enough for 2^64 of them.
inline constexpr int kMostLevels = 13;

// Keys and positions of terms, sorted by key.
struct SortedTerms {
  bool are_wide;          // uint64, else uint32
  const void* keys;       // [count]
  const void* positions;  // [count], or null: term j is in place j
  uint64_t count;

  GATHER_STITCH_DEVICE uint64_t Key(uint64_t j) const { return At(keys, j); }
  GATHER_STITCH_DEVICE uint64_t Position(uint64_t j) const {
    return positions == nullptr ? j : At(positions, j);
  }
  GATHER_STITCH_DEVICE bool IsHead(uint64_t j) const {
    return j == 0 || Key(j) != Key(j - 1);
  }

 private:
  GATHER_STITCH_DEVICE uint64_t At(const void* numbers, uint64_t j) const {
    return are_wide ? Load<uint64_t>(static_cast<const uint64_t*>(numbers) + j)
                    : Load<uint32_t>(static_cast<const uint32_t*>(numbers) + j);
  }
};

// Tables of rows as [batches, outer, rows_per_line, packs_per_row]. What a
// thread sums is a column: one of the outer * packs_per_row packs under one row
// of a batch.
struct RowTable {
  FastDivider<uint64_t> rows_per_line;
  uint64_t outer;
  FastDivider<uint64_t> packs_per_row;

  // The number of the pack in `column` of row `row_of_batches`, counted over
  // all batches.
  GATHER_STITCH_DEVICE uint64_t PackAt(uint64_t row_of_batches,
                                       uint64_t column) const {
    const uint64_t batch = rows_per_line.Divide(row_of_batches);
    const uint64_t row = row_of_batches - batch * rows_per_line.divisor();
    const uint64_t line = packs_per_row.Divide(column);
    const uint64_t pack = column - line * packs_per_row.divisor();
    return ((batch * outer + line) * rows_per_line.divisor() + row) *
               packs_per_row.divisor() +
           pack;
  }
};

// Adds terms[j], terms[j + 1], ... up to the end of the segment or of the tile
// of j, and returns where it ended.
template <int kCount, typename Element, typename Sum>
GATHER_STITCH_DEVICE uint64_t AddPiece(const SortedTerms& terms,
                                       const RowTable& table,
                                       const Element* rows, SumType type,
                                       uint64_t j, uint64_t column,
                                       Sum (&sums)[kCount]) {
  constexpr int kTermsInFlight = 4;
  const uint64_t key = terms.Key(j);
  const uint64_t tile_end = (j / kTileIndices + 1) * kTileIndices;
  const uint64_t end = tile_end < terms.count ? tile_end : terms.count;
  bool is_inside = true;
  while (is_inside) {
    Pack<Element, kCount> packs[kTermsInFlight];
    bool belongs[kTermsInFlight];
    GATHER_STITCH_UNROLL
    for (int i = 0; i < kTermsInFlight; ++i) {
      is_inside = is_inside && j < end && terms.Key(j) == key;
      belongs[i] = is_inside;
      if (!is_inside) continue;
      const uint64_t pack = table.PackAt(terms.Position(j), column);
      packs[i] = LoadPack<Element, kCount>(rows + pack * kCount);
      ++j;
    }
    GATHER_STITCH_UNROLL
    for (int i = 0; i < kTermsInFlight; ++i) {
      if (!belongs[i]) break;
      GATHER_STITCH_UNROLL
      for (int k = 0; k < kCount; ++k) {
        sums[k] += WidenElement(packs[i].elements[k], type);
      }
    }
  }
  return j;
}

// sums[tile, column] and keys[tile] = those of the piece that starts the tile
// and continues what the tile before ends with; kNoKey where there is none.
template <typename Element, int kCount>
struct SumContinuations {
  using Sum = typename SumOf<Element>::Type;

  SortedTerms terms;
  uint64_t end_key;  // terms from this key on are dropped
  RowTable table;
  const Element* rows;
  SumType type;
  uint64_t tiles;
  FastDivider<uint64_t> columns;
  Sum* sums;
  uint64_t* keys;

  GATHER_STITCH_DEVICE void operator()(const ThreadPosition& at) const {
    for (uint64_t i = at.First(); i < tiles * columns.divisor();
         i += at.Stride()) {
      const uint64_t tile = columns.Divide(i);
      const uint64_t column = i - tile * columns.divisor();
      const uint64_t first = tile * kTileIndices;
      const uint64_t key = terms.Key(first);
      const bool continues = key < end_key && !terms.IsHead(first);
      if (column == 0) keys[tile] = continues ? key : kNoKey;
      if (!continues) continue;
      Pack<Sum, kCount> pack;
      for (Sum& sum : pack.elements) sum = NeutralTerm<Sum>();
      AddPiece(terms, table, rows, type, first, column, pack.elements);
      StorePack(pack, sums + i * kCount);
    }
  }
};

// The sums of continuations as the terms of a level.
template <typename Sum>
struct SumLevel {
  SortedTerms terms;
  const Sum* sums;
};

// target[row, column] = the sum of the segment whose key is `row`, or whose
// number is, for each segment with a key below end_key. A RowTable says where
// rows are.
template <typename Element, int kCount>
struct SumSegments {
  using Sum = typename SumOf<Element>::Type;

  SortedTerms terms;
  uint64_t end_key;
  RowTable table;
  const Element* rows;
  SumType type;
  bool starts_with_zero;  // else with the first term
  FastDivider<uint64_t> columns;
  RowTable level_table;
  SumLevel<Sum> levels[kMostLevels];
  const int64_t* numbers;  // [count], of the segment of each term; or null
  RowTable target_table;
  Element* target;

  GATHER_STITCH_DEVICE void operator()(const ThreadPosition& at) const {
    for (uint64_t i = at.First(); i < terms.count * columns.divisor();
         i += at.Stride()) {
      const uint64_t j = columns.Divide(i);
      const uint64_t column = i - j * columns.divisor();
      const uint64_t key = terms.Key(j);
      if (key >= end_key || !terms.IsHead(j)) continue;
      Sum sums[kCount];
      for (Sum& sum : sums)
        sum = starts_with_zero ? Sum{0} : NeutralTerm<Sum>();
      uint64_t end = AddPiece(terms, table, rows, type, j, column, sums);
      const SortedTerms* level_terms = &terms;
      for (int level = 0; Continues(*level_terms, end, key); ++level) {
        level_terms = &levels[level].terms;
        end = AddPiece(*level_terms, level_table, levels[level].sums, type,
                       end / kTileIndices, column, sums);
      }
      Pack<Element, kCount> pack;
      GATHER_STITCH_UNROLL
      for (int k = 0; k < kCount; ++k) {
        pack.elements[k] = ElementNarrower<Element>::Call(sums[k], type);
      }
      const uint64_t row =
          numbers == nullptr ? key : static_cast<uint64_t>(numbers[j] - 1);
      StorePack(pack, target + target_table.PackAt(row, column) * kCount);
    }
  }

 private:
  // Whether a piece that ended at `end` is continued in the tile that starts
  // there.
  GATHER_STITCH_DEVICE static bool Continues(const SortedTerms& terms,
                                             uint64_t end, uint64_t key) {
    return end % kTileIndices == 0 && end < terms.count &&
           terms.Key(end) == key;
  }
};

}  // namespace gpu
}  // namespace gather_stitch

#endif  // GATHER_STITCH_CORE_GPU_SUM_SEGMENTS_KERNEL_H_
