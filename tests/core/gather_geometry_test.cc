// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// The shapes of a gather, known and partly known.

#include "tf_ops/core/gather_geometry.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/core/test_harness.h"

namespace gather_stitch {
namespace testing {
namespace {

using Dims = std::vector<int64_t>;

ShapeView View(const Dims& dims) {
  return {dims.data(), static_cast<int>(dims.size())};
}

// A shape of known dimensions, some of which are hidden.
struct Shape {
  bool has_rank = true;
  Dims dims;

  ShapeView view() const { return has_rank ? View(dims) : ShapeView(); }
};

const std::vector<int64_t> kNumbers = {
    INT64_MIN, INT64_MIN + 1, -300,     -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5,
    300,       INT64_MAX - 1, INT64_MAX};

// The rules once more, with the arithmetic of a wider type.
struct Expected {
  GatherRule rule = GatherRule::kOk;
  Dims output;
};

Expected ExpectedShapes(const Dims& params, const Dims& indices,
                        int64_t given_axis, int64_t given_batch_dims) {
  __extension__ typedef __int128 Wide;
  const Wide params_rank = static_cast<Wide>(params.size());
  const Wide indices_rank = static_cast<Wide>(indices.size());
  if (params_rank < 1) return {GatherRule::kParamsScalar, {}};
  const Wide axis = given_axis < 0 ? given_axis + params_rank : given_axis;
  if (axis < 0 || axis >= params_rank) return {GatherRule::kAxisRange, {}};
  const Wide batch_dims = given_batch_dims < 0
                              ? given_batch_dims + indices_rank
                              : static_cast<Wide>(given_batch_dims);
  if (batch_dims < 0 || batch_dims > indices_rank) {
    return {GatherRule::kBatchDimsRange, {}};
  }
  if (batch_dims >= params_rank) {
    return {GatherRule::kBatchDimsBelowParamsRank, {}};
  }
  if (batch_dims > axis) return {GatherRule::kBatchDimsNotAboveAxis, {}};
  const int64_t a = static_cast<int64_t>(axis);
  const int64_t b = static_cast<int64_t>(batch_dims);
  if (!std::equal(params.begin(), params.begin() + b, indices.begin())) {
    return {GatherRule::kBatchSizes, {}};
  }
  Expected expected;
  expected.output.assign(params.begin(), params.begin() + a);
  expected.output.insert(expected.output.end(), indices.begin() + b,
                         indices.end());
  expected.output.insert(expected.output.end(), params.begin() + a + 1,
                         params.end());
  return expected;
}

std::vector<Dims> SmallShapes(int max_rank, const Dims& sizes) {
  std::vector<Dims> shapes = {{}};
  size_t begin = 0;
  for (int rank = 1; rank <= max_rank; ++rank) {
    const size_t end = shapes.size();
    for (; begin < end; ++begin) {
      for (const int64_t size : sizes) {
        Dims longer = shapes[begin];
        longer.push_back(size);
        shapes.push_back(longer);
      }
    }
  }
  return shapes;
}

std::string Words(ShapeView params, ShapeView indices,
                  std::optional<int64_t> axis, int64_t batch_dims) {
  return "params " + ShapeString(params) + ", indices " + ShapeString(indices) +
         ", axis " + (axis.has_value() ? std::to_string(*axis) : "?") +
         ", batch_dims " + std::to_string(batch_dims);
}

TEST(GeometryOfEveryKnownShape) {
  for (const Dims& params : SmallShapes(3, {0, 2, 3})) {
    for (const Dims& indices : SmallShapes(3, {0, 2, 3})) {
      for (const int64_t axis : kNumbers) {
        for (const int64_t batch_dims : kNumbers) {
          const GatherShapes shapes =
              InferGatherShapes(View(params), View(indices), axis, batch_dims);
          const Expected expected =
              ExpectedShapes(params, indices, axis, batch_dims);
          if (shapes.rule == expected.rule &&
              shapes.error.empty() == shapes.ok() &&
              (!shapes.ok() ||
               (shapes.is_known && shapes.output_dims == expected.output))) {
            const GatherGeometry& g = shapes.geometry;
            if (!shapes.ok()) continue;
            int64_t elements = 1;
            for (const int64_t dim : expected.output) elements *= dim;
            if (g.batches * g.outer * g.indices_per_batch * g.inner ==
                    elements &&
                g.rows == params[*shapes.axis]) {
              continue;
            }
          }
          SCOPED_NOTE(Words(View(params), View(indices), axis, batch_dims));
          EXPECT_EQ(static_cast<int>(shapes.rule),
                    static_cast<int>(expected.rule));
          EXPECT_EQ(shapes.output_dims, expected.output);
          EXPECT_TRUE(!"as expected");
        }
      }
    }
  }
}

Shape Hidden(const Dims& dims, Random& random) {
  Shape shape;
  shape.dims = dims;
  shape.has_rank = !random.OneIn(5);
  for (int64_t& dim : shape.dims) {
    if (random.OneIn(3)) dim = kUnknownDim;
  }
  return shape;
}

// What is inferred from a part never contradicts what follows from the whole.
TEST(GeometryOfPartsAgreesWithTheWhole) {
  Random random = TestRandom();
  const std::vector<Dims> all = SmallShapes(4, {0, 2, 3});
  for (int i = 0; i < 100000; ++i) {
    const Dims& params = random.Of(all);
    Dims indices = random.Of(all);
    // Mostly with batch dimensions that agree.
    for (size_t k = 0; k < std::min(params.size(), indices.size()); ++k) {
      if (!random.OneIn(4)) indices[k] = params[k];
    }
    const int64_t axis =
        random.OneIn(6) ? random.Of(kNumbers) : random.Between(-4, 4);
    const int64_t batch_dims =
        random.OneIn(6) ? random.Of(kNumbers) : random.Between(-4, 4);
    const GatherShapes whole =
        InferGatherShapes(View(params), View(indices), axis, batch_dims);
    const Shape params_part = Hidden(params, random);
    const Shape indices_part = Hidden(indices, random);
    const std::optional<int64_t> axis_part =
        random.OneIn(3) ? std::nullopt : std::optional<int64_t>(axis);
    const GatherShapes part = InferGatherShapes(
        params_part.view(), indices_part.view(), axis_part, batch_dims);
    SCOPED_NOTE(Words(View(params), View(indices), axis, batch_dims));
    SCOPED_NOTE(
        Words(params_part.view(), indices_part.view(), axis_part, batch_dims));
    if (!part.ok()) {
      EXPECT_TRUE(!whole.ok());
      EXPECT_TRUE(!part.error.empty());
      continue;
    }
    EXPECT_TRUE(!part.is_known || whole.ok() == part.ok());
    if (!whole.ok()) continue;
    if (part.axis.has_value()) EXPECT_EQ(*part.axis, *whole.axis);
    if (part.batch_dims.has_value()) {
      EXPECT_EQ(*part.batch_dims, *whole.batch_dims);
    }
    if (params_part.has_rank && indices_part.has_rank) {
      EXPECT_EQ(part.output_rank, whole.output_rank);
    }
    if (part.output_rank == kUnknownRank) continue;
    EXPECT_EQ(part.output_rank, whole.output_rank);
    for (int k = 0; k < whole.output_rank; ++k) {
      if (part.output_dims[k] == kUnknownDim) continue;
      EXPECT_EQ(part.output_dims[k], whole.output_dims[k]);
    }
  }
}

std::vector<Dims> Completions(const Shape& shape, const std::vector<Dims>& all,
                              const Dims& sizes) {
  if (!shape.has_rank) return all;
  std::vector<Dims> completions = {{}};
  for (const int64_t dim : shape.dims) {
    std::vector<Dims> longer;
    for (const Dims& head : completions) {
      for (const int64_t size : dim == kUnknownDim ? sizes : Dims{dim}) {
        longer.push_back(head);
        longer.back().push_back(size);
      }
    }
    completions = longer;
  }
  return completions;
}

// Everything is inferred that all completions of the unknown parts share.
TEST(GeometryOfPartsYieldsAllThatFollows) {
  Random random = TestRandom();
  const Dims sizes = {2, 3, 5};
  const std::vector<Dims> all = SmallShapes(3, sizes);
  for (int i = 0; i < 1500; ++i) {
    const Dims& params = random.Of(all);
    Dims indices = random.Of(all);
    for (size_t k = 0; k < std::min(params.size(), indices.size()); ++k) {
      if (!random.OneIn(4)) indices[k] = params[k];
    }
    const Shape params_part = Hidden(params, random);
    const Shape indices_part = Hidden(indices, random);
    const int64_t batch_dims = random.Between(-3, 3);
    std::vector<int64_t> axes = {random.Between(-3, 2)};
    const std::optional<int64_t> axis =
        random.OneIn(3) ? std::nullopt : std::optional<int64_t>(axes[0]);
    if (!axis.has_value()) axes = {-3, -2, -1, 0, 1, 2};

    bool is_possible = false;
    bool has_rank = true;
    Dims shared;
    for (const Dims& p : Completions(params_part, all, sizes)) {
      for (const Dims& q : Completions(indices_part, all, sizes)) {
        for (const int64_t a : axes) {
          const Expected expected = ExpectedShapes(p, q, a, batch_dims);
          if (expected.rule != GatherRule::kOk) continue;
          if (!is_possible) shared = expected.output;
          is_possible = true;
          if (shared.size() != expected.output.size()) has_rank = false;
          if (!has_rank) continue;
          for (size_t k = 0; k < shared.size(); ++k) {
            if (shared[k] != expected.output[k]) shared[k] = kUnknownDim;
          }
        }
      }
    }
    if (!is_possible) continue;
    // Among so few ranks more follows from an unknown rank than in general.
    if (!params_part.has_rank || !indices_part.has_rank) continue;
    const GatherShapes part = InferGatherShapes(
        params_part.view(), indices_part.view(), axis, batch_dims);
    SCOPED_NOTE(
        Words(params_part.view(), indices_part.view(), axis, batch_dims));
    EXPECT_TRUE(part.ok());
    EXPECT_EQ(part.output_dims, shared);
  }
}

TEST(GeometryOfUnknownRanks) {
  const Dims matrix = {4, 7};
  // The rank of I[b:] is -batch_dims, whatever the rank of the indices.
  const GatherShapes tail = InferGatherShapes(View(matrix), ShapeView(), 1, -1);
  EXPECT_EQ(ShapeString(tail.output()), "[4,?]");
  const GatherShapes unknown =
      InferGatherShapes(View(matrix), ShapeView(), 0, 0);
  EXPECT_TRUE(unknown.ok());
  EXPECT_EQ(unknown.output_rank, kUnknownRank);
  const Dims batch = {kUnknownDim, 5};
  const Dims indices = {4, kUnknownDim};
  EXPECT_EQ(
      ShapeString(InferGatherShapes(View(batch), View(indices), 1, 1).output()),
      "[4,?]");
  // An axis that is not known: each dimension that is the same for all.
  const Dims cube = {2, 2, 9};
  const Dims two = {2};
  EXPECT_EQ(
      ShapeString(
          InferGatherShapes(View(cube), View(two), std::nullopt, 0).output()),
      "[2,2,?]");
  const GatherShapes nothing =
      InferGatherShapes(ShapeView(), ShapeView(), std::nullopt, INT64_MIN);
  EXPECT_TRUE(nothing.ok());
  EXPECT_EQ(nothing.output_rank, kUnknownRank);
}

TEST(GeometryErrorWords) {
  struct Row {
    Dims params;
    Dims indices;
    int64_t axis;
    int64_t batch_dims;
    std::string error;
  };
  const std::vector<Row> rows = {
      {{}, {2}, 0, 0, "params must be at least 1 dimensional"},
      {{3, 4},
       {2},
       5,
       0,
       "Shape must be at least rank 6 but is rank 2: axis = 5 is not in "
       "[-2, 2)"},
      {{3, 4},
       {2},
       -3,
       0,
       "Shape must be at least rank 3 but is rank 2: axis = -3 is not in "
       "[-2, 2)"},
      {{3, 4},
       {2},
       INT64_MIN,
       0,
       "Shape must be at least rank 9223372036854775808 but is rank 2: axis = "
       "-9223372036854775808 is not in [-2, 2)"},
      {{3, 4},
       {2},
       INT64_MAX,
       0,
       "Shape must be at least rank 9223372036854775808 but is rank 2: axis = "
       "9223372036854775807 is not in [-2, 2)"},
      {{3, 4},
       {2, 3},
       0,
       5,
       "Expected batch_dims in the range [-2, 2], but got 5"},
      {{3, 4},
       {2, 3},
       0,
       INT64_MIN,
       "Expected batch_dims in the range [-2, 2], but got "
       "-9223372036854775808"},
      {{3, 4},
       {3, 4},
       1,
       2,
       "batch_dims (2) must be less than rank(params) (2)."},
      {{3, 4},
       {3, 4},
       0,
       1,
       "batch_dims (1) must be less than or equal to axis (0)."},
      {{3, 4},
       {2, 4},
       1,
       1,
       "params.shape[0]: 3 should be equal to indices.shape[0]: 2"},
      {{INT64_MAX, 3},
       {2},
       0,
       0,
       "params.shape = [9223372036854775807,3] must have less than 2^63 "
       "elements"},
      {{1, int64_t{1} << 40},
       {int64_t{1} << 40},
       0,
       0,
       "output.shape = [1099511627776,1099511627776] must have less than 2^63 "
       "elements"},
  };
  for (const Row& row : rows) {
    const GatherShapes shapes = InferGatherShapes(
        View(row.params), View(row.indices), row.axis, row.batch_dims);
    EXPECT_EQ(shapes.error, row.error);
    EXPECT_EQ(shapes.ok(), false);
    EXPECT_EQ(shapes.output_rank, kUnknownRank);
  }
}

TEST(GeometryOfTheLargestRanks) {
  const Dims most(kMaxRank, 1);
  const Dims one = {1};
  EXPECT_EQ(InferGatherShapes(View(most), View(one), 7, 0).output_rank,
            kMaxRank);
  const Dims two = {1, 1};
  const GatherShapes shapes = InferGatherShapes(View(most), View(two), 7, 0);
  EXPECT_EQ(shapes.error, "rank(output) = 255 must be at most 254");
  EXPECT_EQ(
      InferGatherShapes(View(most), View(most), kMaxRank - 1, kMaxRank - 1)
          .output_rank,
      kMaxRank);
  // Beyond any rank, and the rank of the indices unknown.
  EXPECT_TRUE(InferGatherShapes(View(most), ShapeView(), 7, INT64_MIN).ok());
}

// Empty: products saturate only beside a zero.
TEST(GeometryOfHugeEmptyShapes) {
  const Dims params = {INT64_MAX, 4, 0, INT64_MAX};
  const Dims indices = {5};
  const GatherShapes shapes =
      InferGatherShapes(View(params), View(indices), 1, 0);
  EXPECT_EQ(shapes.error, "");
  EXPECT_EQ(shapes.output_dims, (Dims{INT64_MAX, 5, 0, INT64_MAX}));
  EXPECT_EQ(shapes.geometry.outer, INT64_MAX);
  EXPECT_EQ(shapes.geometry.inner, 0);
  EXPECT_EQ(shapes.geometry.has_output(), false);
  // The zero is gathered away.
  const Dims rowless = {INT64_MAX, 0, 3};
  EXPECT_EQ(static_cast<int>(
                InferGatherShapes(View(rowless), View(indices), 1, 0).rule),
            static_cast<int>(GatherRule::kOutputSize));
}

}  // namespace
}  // namespace testing
}  // namespace gather_stitch
