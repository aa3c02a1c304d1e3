// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// Shapes and errors as words.

#include "tf_ops/core/error_words.h"

#include <cstdint>
#include <string>
#include <vector>

#include "tests/core/test_harness.h"
#include "tf_ops/core/shape_view.h"

namespace gather_stitch {
namespace testing {
namespace {

using Dims = std::vector<int64_t>;

ShapeView View(const Dims& dims) {
  return {dims.data(), static_cast<int>(dims.size())};
}

TEST(ShapesAsWords) {
  const Dims dims = {2, kUnknownDim, 3};
  const Dims none;
  EXPECT_EQ(ShapeString(View(dims)), "[2,?,3]");
  EXPECT_EQ(ShapeString(View(none)), "[]");
  EXPECT_EQ(ShapeString(ShapeView()), "<unknown>");
}

TEST(PositionsAsWords) {
  const Dims dims = {2, 3, 4};
  const Dims none;
  EXPECT_EQ(PositionString(View(dims), 0), "[0,0,0]");
  EXPECT_EQ(PositionString(View(dims), 23), "[1,2,3]");
  EXPECT_EQ(PositionString(View(dims), 13), "[1,0,1]");
  EXPECT_EQ(PositionString(View(none), 0), "");
}

TEST(Products) {
  const Dims dims = {INT64_MAX, 2, 0, 5};
  EXPECT_EQ(SaturatingProduct(View(dims), 0, 4), 0);
  EXPECT_EQ(SaturatingProduct(View(dims), 0, 2), INT64_MAX);
  EXPECT_EQ(SaturatingProduct(View(dims), 0, 1), INT64_MAX);
  EXPECT_EQ(SaturatingProduct(View(dims), 1, 1), 1);
  EXPECT_EQ(SaturatingMultiply(int64_t{1} << 31, int64_t{1} << 32), INT64_MAX);
  EXPECT_EQ(SaturatingMultiply(int64_t{1} << 31, int64_t{1} << 31),
            int64_t{1} << 62);
  EXPECT_EQ(SaturatingMultiply(INT64_MAX, 0), 0);
}

TEST(IndexErrorsAsWords) {
  const Dims scalar;
  const Dims vector = {7};
  const Dims matrix = {3, 2};
  EXPECT_EQ(GatherIndexError(Outcome::BadIndex(0, 5, 99), View(matrix),
                             IndexType::kInt32, 5),
            "indices[2,1] = 99 is not in [0, 5)");
  EXPECT_EQ(GatherIndexError(Outcome::BadIndex(0, 0, 99), View(scalar),
                             IndexType::kInt32, 5),
            "indices = 99 is not in [0, 5)");
  EXPECT_EQ(GatherIndexError(Outcome::BadIndex(0, 3, -1), View(vector),
                             IndexType::kUint64, 5),
            "indices[3] = 18446744073709551615 is not in [0, 5)");
  EXPECT_EQ(StitchIndexError(Outcome::BadIndex(1, 2, -3), View(vector), 9),
            "indices[1][2] = -3 is not in [0, 9)");
  EXPECT_EQ(
      StitchIndexError(Outcome::BadIndex(1, 4, -3), View(matrix), INT64_MAX),
      "indices[1][2,0] = -3 is not in [0, 9223372036854775807)");
  EXPECT_EQ(StitchIndexError(Outcome::BadIndex(1, 0, -3), View(scalar), 9),
            "indices[1] = -3 is not in [0, 9)");
}

TEST(GradientErrorsAsWords) {
  const Dims grad = {3, 2};
  const Dims same = {3, kUnknownDim};
  const Dims other = {3, 4};
  const Dims shorter = {3};
  EXPECT_EQ(GatherGradShapeError(View(grad), View(same)), "");
  EXPECT_EQ(GatherGradShapeError(View(grad), ShapeView()), "");
  EXPECT_TRUE(!GatherGradShapeError(View(grad), View(other)).empty());
  EXPECT_TRUE(!GatherGradShapeError(View(grad), View(shorter)).empty());
  EXPECT_EQ(SparseGradShapeError(View(grad), View(shorter)), "");
  EXPECT_TRUE(!SparseGradShapeError(View(shorter), View(grad)).empty());
  EXPECT_TRUE(!SparseGradShapeError(View(grad), View(other)).empty());
  const Dims negative = {3, -1};
  EXPECT_EQ(ParamsShapeError(View(grad)), "");
  EXPECT_EQ(ParamsShapeError(View(negative)),
            "params_shape[1] = -1 must not be negative");
}

}  // namespace
}  // namespace testing
}  // namespace gather_stitch
