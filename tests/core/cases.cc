// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

#include "tests/core/cases.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "tf_ops/core/numeric_types.h"

namespace gather_stitch {

std::ostream& operator<<(std::ostream& stream, const Outcome& outcome) {
  switch (outcome.code) {
    case Outcome::kOk:
      return stream << "ok";
    case Outcome::kOutOfMemory:
      return stream << "out of memory";
    case Outcome::kBadIndex:
      break;
  }
  return stream << "bad index " << outcome.value << " at " << outcome.position
                << " of input " << outcome.input;
}

namespace testing {

const std::vector<IndexType> kAllIndexTypes = {
    IndexType::kInt8,   IndexType::kUint8, IndexType::kInt16,
    IndexType::kUint16, IndexType::kInt32, IndexType::kUint32,
    IndexType::kInt64,  IndexType::kUint64};
const std::vector<IndexType> kStitchIndexTypes = {IndexType::kInt32,
                                                  IndexType::kInt64};
const std::vector<BadIndexAction> kAllActions = {
    BadIndexAction::kFail, BadIndexAction::kZero, BadIndexAction::kClip,
    BadIndexAction::kWrap, BadIndexAction::kZeroNegative};
const std::vector<SumType> kAllSumTypes = {
    SumType::kInt8,           SumType::kInt16,
    SumType::kInt32,          SumType::kInt64,
    SumType::kFloat32,        SumType::kFloat64,
    SumType::kHalf,           SumType::kBfloat16,
    SumType::kFloat8E5m2,     SumType::kFloat8E4m3fn,
    SumType::kFloat8E4m3fnuz, SumType::kFloat8E4m3b11fnuz,
    SumType::kFloat8E5m2fnuz};
const std::vector<IndexOrder> kAllOrders = {
    IndexOrder::kUniform, IndexOrder::kRuns,    IndexOrder::kOneRow,
    IndexOrder::kSkewed,  IndexOrder::kWithBad, IndexOrder::kExtremes};

int64_t IndexBytes(IndexType type) {
  return VisitIndexType(type,
                        [](auto index) -> int64_t { return sizeof(index); });
}

const char* Name(IndexType type) {
  constexpr const char* kNames[] = {"int8",  "uint8",  "int16", "uint16",
                                    "int32", "uint32", "int64", "uint64"};
  return kNames[static_cast<int>(type)];
}

const char* Name(BadIndexAction action) {
  constexpr const char* kNames[] = {"fail", "zero", "clip", "wrap",
                                    "zero negative"};
  return kNames[static_cast<int>(action)];
}

const char* Name(SumType type) {
  constexpr const char* kNames[] = {
      "int8",           "int16",           "int32",
      "int64",          "float32",         "float64",
      "half",           "bfloat16",        "float8_e5m2",
      "float8_e4m3fn",  "float8_e4m3fnuz", "float8_e4m3b11fnuz",
      "float8_e5m2fnuz"};
  return kNames[static_cast<int>(type)];
}

std::string Description(const GatherGeometry& geometry) {
  return "batches " + std::to_string(geometry.batches) + ", outer " +
         std::to_string(geometry.outer) + ", rows " +
         std::to_string(geometry.rows) + ", inner " +
         std::to_string(geometry.inner) + ", indices " +
         std::to_string(geometry.indices_per_batch);
}

void StoreIndex(char* indices, int64_t i, IndexType type, int64_t value) {
  VisitIndexType(type, [&](auto index) {
    reinterpret_cast<decltype(index)*>(indices)[i] =
        static_cast<decltype(index)>(value);
  });
}

namespace {

template <typename Index>
int64_t RandomExtreme(int64_t rows, Random& random) {
  using Limits = std::numeric_limits<Index>;
  switch (random.Between(0, 7)) {
    case 0:
      return 0;
    case 1:
      return rows - 1;
    case 2:
      return rows;
    case 3:
      return -1;
    case 4:
      return -rows;
    case 5:
      return -rows - 1;
    case 6:
      return static_cast<int64_t>(Limits::min());
    default:
      return static_cast<int64_t>(Limits::max());
  }
}

// At most the largest of the dtype.
int64_t RowsInReach(int64_t rows, IndexType type) {
  return VisitIndexType(type, [&](auto index) {
    using Index = decltype(index);
    if constexpr (sizeof(Index) == 8) {
      return rows;
    } else {
      return std::min<int64_t>(
          rows, static_cast<int64_t>(std::numeric_limits<Index>::max()) + 1);
    }
  });
}

}  // namespace

Input RandomIndices(int64_t count, int64_t rows, IndexType type,
                    IndexOrder order, Random& random) {
  // Aligned to the dtype and to nothing more.
  const int64_t bytes = IndexBytes(type);
  Input indices(count * bytes, bytes * random.Between(0, 3), random);
  const int64_t last = std::max<int64_t>(RowsInReach(rows, type), 1) - 1;
  int64_t row = random.Between(0, last);
  for (int64_t i = 0; i < count; ++i) {
    int64_t index = row;
    switch (order) {
      case IndexOrder::kOneRow:
        break;
      case IndexOrder::kRuns:
        row = row == last || random.OneIn(700) ? random.Between(0, last)
                                               : row + 1;
        break;
      case IndexOrder::kSkewed:
        index = random.OneIn(4) ? random.Between(0, last)
                                : random.Between(0, std::min<int64_t>(3, last));
        break;
      case IndexOrder::kWithBad:
        if (random.OneIn(50)) {
          // Unsigned, since the last row may be the last int64.
          index = random.OneIn(2)
                      ? static_cast<int64_t>(static_cast<uint64_t>(last) +
                                             random.Between(1, 100))
                      : -random.Between(1, 100);
          break;
        }
        [[fallthrough]];
      case IndexOrder::kUniform:
        index = random.Between(0, last);
        break;
      case IndexOrder::kExtremes:
        index = VisitIndexType(type, [&](auto typed) {
          return RandomExtreme<decltype(typed)>(rows, random);
        });
        break;
    }
    StoreIndex(indices.data(), i, type, index);
  }
  return indices;
}

namespace {

template <typename T>
void StoreFloat(char* elements, int64_t i, double value) {
  T* const to = reinterpret_cast<T*>(elements) + i;
  if constexpr (std::is_arithmetic_v<T>) {
    *to = static_cast<T>(value);
  } else {
    *to = Narrow<T>(static_cast<float>(value));
  }
}

using StoreFunction = void (*)(char*, int64_t, double);

StoreFunction StoreFunctionOf(SumType type) {
  switch (type) {
    case SumType::kFloat32:
      return StoreFloat<float>;
    case SumType::kFloat64:
      return StoreFloat<double>;
    case SumType::kHalf:
      return StoreFloat<Half>;
    case SumType::kBfloat16:
      return StoreFloat<Bfloat16>;
    case SumType::kFloat8E5m2:
      return StoreFloat<Float8E5m2>;
    case SumType::kFloat8E4m3fn:
      return StoreFloat<Float8E4m3fn>;
    case SumType::kFloat8E4m3fnuz:
      return StoreFloat<Float8E4m3fnuz>;
    case SumType::kFloat8E4m3b11fnuz:
      return StoreFloat<Float8E4m3b11fnuz>;
    case SumType::kFloat8E5m2fnuz:
      return StoreFloat<Float8E5m2fnuz>;
    default:
      return nullptr;
  }
}

}  // namespace

Input RandomElements(int64_t count, SumType type, Random& random) {
  Input elements(count * SumTypeBytes(type),
                 SumTypeBytes(type) * random.Between(0, 3), random);
  const StoreFunction store = StoreFunctionOf(type);
  if (store == nullptr) return elements;  // any bits are an integer
  // The largest finite number of the narrowest type is 30.
  for (int64_t i = 0; i < count; ++i) {
    const double sign = random.OneIn(2) ? 1 : -1;
    const double fraction =
        1 + static_cast<double>(random.Bits() >> 11) * 0x1p-53;
    double value = sign * fraction * std::ldexp(1, random.Between(-12, 3));
    if (random.OneIn(6)) value = sign * 0;
    if (random.OneIn(30)) {
      value =
          sign * fraction * (type == SumType::kFloat64 ? 0x1p-1030 : 0x1p-130);
    }
    store(elements.data(), i, value);
  }
  return elements;
}

Input RandomWholeElements(int64_t count, SumType type, Random& random) {
  Input elements(count * SumTypeBytes(type),
                 SumTypeBytes(type) * random.Between(0, 3), random);
  const StoreFunction store = StoreFunctionOf(type);
  if (store == nullptr) return elements;
  for (int64_t i = 0; i < count; ++i) {
    store(elements.data(), i, random.Of<double>({-4, -2, -1, 0, 1, 2, 3}));
  }
  return elements;
}

}  // namespace testing
}  // namespace gather_stitch
