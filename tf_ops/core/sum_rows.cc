// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

#include "tf_ops/core/sum_rows.h"

#include <algorithm>
#include <type_traits>

#include "tf_ops/core/numeric_types.h"

namespace gather_stitch {
namespace {

// How far ahead a row of grad is announced.
constexpr int64_t kPrefetchPairs = 8;

// Integers are unsigned here: their sums wrap around.
template <typename T>
constexpr bool kIsWide = std::is_arithmetic_v<T>;

template <typename T>
using Accumulator = std::conditional_t<kIsWide<T>, T, float>;

template <typename T>
Accumulator<T> Widened(T x) {
  if constexpr (kIsWide<T>) {
    return x;
  } else {
    return Widen(x);
  }
}

template <typename T>
void AddRow(const T* __restrict row, int64_t columns,
            Accumulator<T>* __restrict accumulators) {
  for (int64_t j = 0; j < columns; ++j) {
    accumulators[j] =
        static_cast<Accumulator<T>>(accumulators[j] + Widened(row[j]));
  }
}

// kColumns: the number of columns, or 0 where it is not known here.
template <typename T, int kColumns>
void AddPairs(const RowPairs& pairs, const T* grad, int64_t grad_stride,
              int64_t columns, Accumulator<T>* accumulators,
              int64_t accumulator_stride) {
  if constexpr (kColumns != 0) columns = kColumns;
  // Accumulators are in the cache; rows of grad may be anywhere.
  constexpr bool kPrefetch = kColumns == 0 || kColumns * sizeof(T) >= 16;
  for (int64_t i = 0; i < pairs.count; ++i) {
    if constexpr (kPrefetch) {
      const int64_t ahead = std::min(i + kPrefetchPairs, pairs.count - 1);
      __builtin_prefetch(grad + pairs.positions[ahead] * grad_stride);
    }
    AddRow(grad + pairs.positions[i] * grad_stride, columns,
           accumulators + pairs.rows[i] * accumulator_stride);
  }
}

template <typename T>
struct Sum {
  static void Start(SumStart start, int64_t count, void* accumulators) {
    Accumulator<T> value = 0;
    if constexpr (std::is_floating_point_v<Accumulator<T>>) {
      if (start == SumStart::kNeutral) value = -value;
    }
    std::fill_n(static_cast<Accumulator<T>*>(accumulators), count, value);
  }

  static void Add(const RowPairs& pairs, const void* grad, int64_t grad_stride,
                  int64_t columns, void* accumulators,
                  int64_t accumulator_stride) {
    const auto add = Choose(columns);
    add(pairs, static_cast<const T*>(grad), grad_stride, columns,
        static_cast<Accumulator<T>*>(accumulators), accumulator_stride);
  }

  static void Round(const float* accumulators, int64_t count, void* elements) {
    if constexpr (!kIsWide<T>) {
      T* const out = static_cast<T*>(elements);
      for (int64_t i = 0; i < count; ++i) out[i] = Narrow<T>(accumulators[i]);
    }
  }

 private:
  using AddFunction = void (*)(const RowPairs&, const T*, int64_t, int64_t,
                               Accumulator<T>*, int64_t);

  static AddFunction Choose(int64_t columns) {
    switch (columns) {
      case 1:
        return AddPairs<T, 1>;
      case 2:
        return AddPairs<T, 2>;
      case 4:
        return AddPairs<T, 4>;
      case 8:
        return AddPairs<T, 8>;
      case 16:
        return AddPairs<T, 16>;
      case 32:
        return AddPairs<T, 32>;
      default:
        return AddPairs<T, 0>;
    }
  }
};

template <typename T>
constexpr SumFunctions kSumFunctions = {
    sizeof(T),   sizeof(Accumulator<T>),
    kIsWide<T>,  Sum<T>::Start,
    Sum<T>::Add, kIsWide<T> ? nullptr : Sum<T>::Round};

}  // namespace

const SumFunctions& SumFunctionsOf(SumType type) {
  switch (type) {
    case SumType::kInt8:
      return kSumFunctions<uint8_t>;
    case SumType::kInt16:
      return kSumFunctions<uint16_t>;
    case SumType::kInt32:
      return kSumFunctions<uint32_t>;
    case SumType::kInt64:
      return kSumFunctions<uint64_t>;
    case SumType::kFloat32:
      return kSumFunctions<float>;
    case SumType::kFloat64:
      return kSumFunctions<double>;
    case SumType::kHalf:
      return kSumFunctions<Half>;
    case SumType::kBfloat16:
      return kSumFunctions<Bfloat16>;
    case SumType::kFloat8E5m2:
      return kSumFunctions<Float8E5m2>;
    case SumType::kFloat8E4m3fn:
      return kSumFunctions<Float8E4m3fn>;
    case SumType::kFloat8E4m3fnuz:
      return kSumFunctions<Float8E4m3fnuz>;
    case SumType::kFloat8E4m3b11fnuz:
      return kSumFunctions<Float8E4m3b11fnuz>;
    case SumType::kFloat8E5m2fnuz:
      break;
  }
  return kSumFunctions<Float8E5m2fnuz>;
}

int64_t SumTypeBytes(SumType type) {
  return SumFunctionsOf(type).element_bytes;
}

}  // namespace gather_stitch
