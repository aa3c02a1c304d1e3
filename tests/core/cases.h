// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// Cases that the conformance tests share.

#ifndef GATHER_STITCH_TESTS_CORE_CASES_H_
#define GATHER_STITCH_TESTS_CORE_CASES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tests/core/buffers.h"
#include "tests/core/test_harness.h"
#include "tf_ops/core/gather_geometry.h"
#include "tf_ops/core/gather_grad.h"
#include "tf_ops/core/indices.h"
#include "tf_ops/core/outcome.h"

namespace gather_stitch {

inline bool operator==(const Outcome& a, const Outcome& b) {
  return a.code == b.code && a.input == b.input && a.position == b.position &&
         a.value == b.value;
}

std::ostream& operator<<(std::ostream& stream, const Outcome& outcome);

namespace testing {

extern const std::vector<IndexType> kAllIndexTypes;
extern const std::vector<IndexType> kStitchIndexTypes;
extern const std::vector<BadIndexAction> kAllActions;
extern const std::vector<SumType> kAllSumTypes;

int64_t IndexBytes(IndexType type);
const char* Name(IndexType type);
const char* Name(BadIndexAction action);
const char* Name(SumType type);
std::string Description(const GatherGeometry& geometry);

// Where indices come from.
enum class IndexOrder {
  kUniform,
  kRuns,      // stretches of consecutive rows
  kOneRow,    // all equal
  kSkewed,    // most name one of a few rows
  kWithBad,   // now and then one that is out of range
  kExtremes,  // first, last, one past, and the ends of the dtype
};
extern const std::vector<IndexOrder> kAllOrders;

// `count` indices into `rows` rows. Those of the first four orders are in
// range where the dtype and rows > 0 allow it.
Input RandomIndices(int64_t count, int64_t rows, IndexType type,
                    IndexOrder order, Random& random);

// Stores `value`, cut to the dtype.
void StoreIndex(char* indices, int64_t i, IndexType type, int64_t value);

// Numbers of a few magnitudes, with both zeros and some denormals, and no NaN,
// so that sums are comparable bit by bit.
Input RandomElements(int64_t count, SumType type, Random& random);

// The same of numbers so small and whole that a sum has the same bits in every
// order.
Input RandomWholeElements(int64_t count, SumType type, Random& random);

}  // namespace testing
}  // namespace gather_stitch

#endif  // GATHER_STITCH_TESTS_CORE_CASES_H_
