// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// Rows arrive whatever way a RowMover chooses: with reads announced ahead or
// not, through the caches or past them.

#include "tf_ops/core/move_rows.h"

#include <algorithm>
#include <vector>

#include "tests/core/buffers.h"
#include "tests/core/lenders.h"
#include "tests/core/test_harness.h"
#include "tf_ops/core/indices.h"

namespace gather_stitch {
namespace testing {
namespace {

constexpr int64_t kHugeBytes = int64_t{1} << 40;

const std::vector<int64_t>& SomeRowBytes() {
  static const std::vector<int64_t>* const row_bytes = [] {
    auto* const sizes = new std::vector<int64_t>;
    for (int64_t bytes = 1; bytes <= 272; ++bytes) sizes->push_back(bytes);
    for (const int64_t bytes : {512, 1000, 1024, 4096, 4112, 8192, 8208, 20000})
      sizes->push_back(bytes);
    return sizes;
  }();
  return *row_bytes;
}

void ExpectMoves(int64_t row_bytes, bool is_run, bool has_zero_rows,
                 int64_t misalignment, Random& random) {
  const int64_t rows = 40;
  const int64_t count = is_run ? 25 : random.Between(1, 60);
  const Input table(rows * row_bytes, random.Between(0, 17), random);
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < count; ++i) {
    numbers.push_back(is_run ? i + 3 : random.Between(0, rows - 1));
  }
  if (has_zero_rows) numbers[random.Between(0, count - 1)] = kZeroRow;

  Output expected(count * row_bytes, misalignment);
  for (int64_t i = 0; i < count; ++i) {
    char* const row = expected.data() + i * row_bytes;
    if (numbers[i] == kZeroRow) {
      std::fill_n(row, row_bytes, 0);
    } else {
      std::copy_n(table.data() + numbers[i] * row_bytes, row_bytes, row);
    }
  }
  for (const int64_t source_bytes : {rows * row_bytes, kHugeBytes}) {
    for (const int64_t output_bytes : {count * row_bytes, kHugeBytes}) {
      SCOPED_NOTE("rows of " + Printed(row_bytes) + " bytes, source of " +
                  Printed(source_bytes) + ", output of " +
                  Printed(output_bytes));
      const RowMover mover(row_bytes, source_bytes, output_bytes);
      Output numbered(count * row_bytes, misalignment);
      mover.MoveNumbered(table.data(), numbers.data(), count, has_zero_rows,
                         numbered.data());
      EXPECT_TRUE(numbered.HasSentinels());
      EXPECT_TRUE(numbered.Equals(expected));

      std::vector<const char*> sources;
      for (const int64_t number : numbers) {
        sources.push_back(number == kZeroRow
                              ? mover.zero_row()
                              : table.data() + number * row_bytes);
      }
      Output pointed(count * row_bytes, misalignment);
      mover.MovePointed(sources.data(), count, pointed.data());
      EXPECT_TRUE(pointed.HasSentinels());
      EXPECT_TRUE(pointed.Equals(expected));
    }
  }
}

TEST(MoveRowsByEveryWay) {
  Random random = TestRandom();
  for (const int64_t row_bytes : SomeRowBytes()) {
    for (const bool is_run : {false, true}) {
      for (const bool has_zero_rows : {false, true}) {
        for (const int64_t misalignment : {int64_t{0}, random.Between(1, 17)}) {
          ExpectMoves(row_bytes, is_run, has_zero_rows, misalignment, random);
        }
      }
    }
  }
}

TEST(FillZerosOfEverySizeAndPlace) {
  for (int64_t bytes = 0; bytes <= 130; ++bytes) {
    for (int64_t misalignment = 0; misalignment <= 17; ++misalignment) {
      for (const bool past_caches : {false, true}) {
        Output output(bytes, misalignment);
        FillZeros(bytes, past_caches, output.data());
        EXPECT_TRUE(output.HasSentinels());
        EXPECT_EQ(std::count(output.data(), output.data() + bytes, 0), bytes);
      }
    }
  }
}

TEST(FillZerosByManyThreads) {
  const ReversedFor parallel;
  constexpr int64_t kBytes = (3 << 20) + 5;
  Output output(kBytes, 3);
  FillZeros(parallel, kBytes, output.data());
  EXPECT_TRUE(output.HasSentinels());
  EXPECT_EQ(std::count(output.data(), output.data() + kBytes, 0), kBytes);
}

}  // namespace
}  // namespace testing
}  // namespace gather_stitch
