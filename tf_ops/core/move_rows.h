// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// Moves rows of bytes: scattered ones into a contiguous block of output, or the
// other way round.
//
//   output[i] == the row_bytes bytes at the i-th source
//   output[numbers[i]] == source[offsets[i]]

#ifndef GATHER_STITCH_CORE_MOVE_ROWS_H_
#define GATHER_STITCH_CORE_MOVE_ROWS_H_

#include <cstdint>

#include "tf_ops/core/parallel_for.h"

namespace gather_stitch {

// For rows of `row_bytes` > 0 bytes out of memory of `source_bytes` bytes to
// `output_bytes` in all; these two decide only by which way rows are moved, not
// the result.
class RowMover {
 public:
  RowMover(int64_t row_bytes, int64_t source_bytes, int64_t output_bytes);

  // The source i is table + numbers[i] * row_bytes, or zeros where numbers[i]
  // is kZeroRow, which may be only where has_zero_rows.
  void MoveNumbered(const char* table, const int64_t* numbers, int64_t count,
                    bool has_zero_rows, char* output) const;

  // The source i is sources[i], or zeros where that is zero_row(). Neither
  // sources nor output overlap.
  void MovePointed(const char* const* sources, int64_t count,
                   char* output) const;

  // output + numbers[i] * row_bytes becomes a copy of the row offsets[i] of
  // `source`, or of the row i where offsets is null, one after the other: of
  // equal numbers the last one counts.
  void Scatter(const char* source, const int64_t* offsets,
               const int64_t* numbers, int64_t count, char* output) const;

  const char* zero_row() const { return zero_row_; }
  int64_t row_bytes() const { return row_bytes_; }

  // What a row costs, for the grain of a loop.
  double row_nanoseconds() const;

  using NumberedFunction = void (*)(const char* table, const int64_t* numbers,
                                    int64_t count, int64_t row_bytes,
                                    char* output);
  using PointedFunction = void (*)(const char* const* sources, int64_t count,
                                   int64_t row_bytes, char* output);
  using ScatterFunction = void (*)(const char* source, const int64_t* offsets,
                                   const int64_t* numbers, int64_t count,
                                   int64_t row_bytes, char* output);

 private:
  int64_t row_bytes_;
  const char* zero_row_;
  bool is_past_caches_;
  NumberedFunction numbered_;
  PointedFunction pointed_;
  ScatterFunction scatter_;
};

// output[0, bytes) = 0, by one thread or by all. Memory larger than the
// last-level cache is best written past the caches.
void FillZeros(int64_t bytes, bool past_caches, char* output);
void FillZeros(const ParallelFor& parallel, int64_t bytes, void* output);

}  // namespace gather_stitch

#endif  // GATHER_STITCH_CORE_MOVE_ROWS_H_
