// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

#include "tf_ops/core/sum_rows.h"

#include <algorithm>
#include <type_traits>

#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "tf_ops/core/cpu_features.h"
#include "tf_ops/core/numeric_types.h"

namespace gather_stitch {
namespace {

// How far ahead a row is announced, and how many of its cache lines: beyond
// them the processor reads ahead by itself. For 16 floats a row and a table in
// the last-level cache this takes a sum from 56 to 24 ns a row; 16 rows ahead
// are no better.
constexpr int64_t kAnnouncedPairs = 8;
constexpr int64_t kAnnouncedBytes = 512;

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

#ifdef __x86_64__
// Compiles a function, with all that it calls, for these instructions. FMA is
// not among them: products must not be fused into sums.
#define GATHER_STITCH_AVX2 __attribute__((target("avx2,f16c"), flatten))

// The first columns, as many as are a multiple of 8: how many that is. 16-bit
// operations take 15 times as long.
GATHER_STITCH_AVX2 inline int64_t AddHalves(const Half* row, int64_t columns,
                                            float* accumulators) {
  int64_t j = 0;
  for (; j + 8 <= columns; j += 8) {
    const __m128i halves =
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(row + j));
    const __m256 sums = _mm256_add_ps(_mm256_loadu_ps(accumulators + j),
                                      _mm256_cvtph_ps(halves));
    _mm256_storeu_ps(accumulators + j, sums);
  }
  return j;
}

GATHER_STITCH_AVX2 inline int64_t RoundToHalves(const float* accumulators,
                                                int64_t count, Half* elements) {
  int64_t j = 0;
  for (; j + 8 <= count; j += 8) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(elements + j),
                     _mm256_cvtps_ph(_mm256_loadu_ps(accumulators + j),
                                     _MM_FROUND_TO_NEAREST_INT));
  }
  return j;
}
#endif

template <typename T, CpuFeatures kFeatures>
void AddRow(const T* __restrict row, int64_t columns,
            Accumulator<T>* __restrict accumulators) {
  int64_t j = 0;
#ifdef __x86_64__
  if constexpr (kFeatures == CpuFeatures::kAvx2 && std::is_same_v<T, Half>) {
    j = AddHalves(row, columns, accumulators);
  }
#endif
  for (; j < columns; ++j) {
    accumulators[j] =
        static_cast<Accumulator<T>>(accumulators[j] + Widened(row[j]));
  }
}

template <typename T>
void AnnounceRow(const T* row, int64_t columns) {
  constexpr int64_t kLineElements = 64 / sizeof(T);
  constexpr int64_t kElements = kAnnouncedBytes / sizeof(T);
  __builtin_prefetch(row);
  for (int64_t j = kLineElements; j < std::min(columns, kElements);
       j += kLineElements) {
    __builtin_prefetch(row + j);
  }
}

template <typename T>
struct AddArguments {
  const RowPairs& pairs;
  const T* grad;
  int64_t grad_stride;
  int64_t columns;
  Accumulator<T>* accumulators;
  int64_t accumulator_stride;
};

// kColumns: the number of columns, or 0 where it is not known here.
template <typename T, CpuFeatures kFeatures, int kColumns, bool kConsecutive,
          Announce kAnnounce>
void AddPairs(const AddArguments<T>& arguments) {
  // Copies, which the compiler knows to stay as they are.
  const AddArguments<T> a = arguments;
  const int64_t columns = kColumns != 0 ? kColumns : a.columns;
  const auto grad_row = [&](int64_t i) {
    const int64_t position =
        kConsecutive ? a.pairs.positions[0] + i : a.pairs.positions[i];
    return a.grad + position * a.grad_stride;
  };
  const auto accumulator_row = [&](int64_t i) {
    return a.accumulators + a.pairs.rows[i] * a.accumulator_stride;
  };
  const int64_t announced =
      kAnnounce == Announce::kNone
          ? 0
          : std::max<int64_t>(0, a.pairs.count - kAnnouncedPairs);
  for (int64_t i = 0; i < announced; ++i) {
    if constexpr (kAnnounce == Announce::kGrad) {
      AnnounceRow(grad_row(i + kAnnouncedPairs), columns);
    } else {
      AnnounceRow(accumulator_row(i + kAnnouncedPairs), columns);
    }
    AddRow<T, kFeatures>(grad_row(i), columns, accumulator_row(i));
  }
  for (int64_t i = announced; i < a.pairs.count; ++i) {
    AddRow<T, kFeatures>(grad_row(i), columns, accumulator_row(i));
  }
}

template <typename T, CpuFeatures kFeatures, int kColumns>
void AddPairsAnnounced(const AddArguments<T>& arguments, Announce announce) {
  if (arguments.pairs.is_consecutive) {
    if (announce == Announce::kNone) {
      AddPairs<T, kFeatures, kColumns, true, Announce::kNone>(arguments);
    } else {
      AddPairs<T, kFeatures, kColumns, true, Announce::kAccumulators>(
          arguments);
    }
  } else if (announce == Announce::kGrad) {
    AddPairs<T, kFeatures, kColumns, false, Announce::kGrad>(arguments);
  } else {
    AddPairs<T, kFeatures, kColumns, false, Announce::kAccumulators>(arguments);
  }
}

template <typename T, CpuFeatures kFeatures>
struct Sum {
  static void Start(SumStart start, int64_t count, void* accumulators) {
    Accumulator<T> value = 0;
    if constexpr (std::is_floating_point_v<Accumulator<T>>) {
      if (start == SumStart::kNeutral) value = -value;
    }
    std::fill_n(static_cast<Accumulator<T>*>(accumulators), count, value);
  }

  static void Add(const RowPairs& pairs, Announce announce, const void* grad,
                  int64_t grad_stride, int64_t columns, void* accumulators,
                  int64_t accumulator_stride) {
    const AddArguments<T> arguments = {
        pairs,
        static_cast<const T*>(grad),
        grad_stride,
        columns,
        static_cast<Accumulator<T>*>(accumulators),
        accumulator_stride};
    switch (columns) {
      case 1:
        return AddPairsAnnounced<T, kFeatures, 1>(arguments, announce);
      case 2:
        return AddPairsAnnounced<T, kFeatures, 2>(arguments, announce);
      case 4:
        return AddPairsAnnounced<T, kFeatures, 4>(arguments, announce);
      case 8:
        return AddPairsAnnounced<T, kFeatures, 8>(arguments, announce);
      case 16:
        return AddPairsAnnounced<T, kFeatures, 16>(arguments, announce);
      case 32:
        return AddPairsAnnounced<T, kFeatures, 32>(arguments, announce);
      default:
        return AddPairsAnnounced<T, kFeatures, 0>(arguments, announce);
    }
  }

  static void Round(const float* accumulators, int64_t count, void* elements) {
    if constexpr (!kIsWide<T>) {
      T* const out = static_cast<T*>(elements);
      int64_t i = 0;
#ifdef __x86_64__
      if constexpr (kFeatures == CpuFeatures::kAvx2 &&
                    std::is_same_v<T, Half>) {
        i = RoundToHalves(accumulators, count, out);
      }
#endif
      for (; i < count; ++i) out[i] = Narrow<T>(accumulators[i]);
    }
  }
};

template <typename T, typename Functions>
constexpr SumFunctions kSumFunctions = {
    sizeof(T),      sizeof(Accumulator<T>),
    kIsWide<T>,     Functions::Start,
    Functions::Add, kIsWide<T> ? nullptr : Functions::Round};

#ifdef __x86_64__
template <typename T>
struct SumOnAvx2 {
  using Base = Sum<T, CpuFeatures::kAvx2>;

  GATHER_STITCH_AVX2 static void Start(SumStart start, int64_t count,
                                       void* accumulators) {
    Base::Start(start, count, accumulators);
  }
  GATHER_STITCH_AVX2 static void Add(const RowPairs& pairs, Announce announce,
                                     const void* grad, int64_t grad_stride,
                                     int64_t columns, void* accumulators,
                                     int64_t accumulator_stride) {
    Base::Add(pairs, announce, grad, grad_stride, columns, accumulators,
              accumulator_stride);
  }
  GATHER_STITCH_AVX2 static void Round(const float* accumulators, int64_t count,
                                       void* elements) {
    Base::Round(accumulators, count, elements);
  }
};
#endif

template <typename T>
const SumFunctions& SumFunctionsFor(CpuFeatures features) {
#ifdef __x86_64__
  if (features == CpuFeatures::kAvx2) return kSumFunctions<T, SumOnAvx2<T>>;
#else
  static_cast<void>(features);
#endif
  return kSumFunctions<T, Sum<T, CpuFeatures::kBaseline>>;
}

}  // namespace

const SumFunctions& SumFunctionsOf(SumType type) {
  const CpuFeatures features = CpuFeaturesInUse();
  switch (type) {
    case SumType::kInt8:
      return SumFunctionsFor<uint8_t>(features);
    case SumType::kInt16:
      return SumFunctionsFor<uint16_t>(features);
    case SumType::kInt32:
      return SumFunctionsFor<uint32_t>(features);
    case SumType::kInt64:
      return SumFunctionsFor<uint64_t>(features);
    case SumType::kFloat32:
      return SumFunctionsFor<float>(features);
    case SumType::kFloat64:
      return SumFunctionsFor<double>(features);
    case SumType::kHalf:
      return SumFunctionsFor<Half>(features);
    case SumType::kBfloat16:
      return SumFunctionsFor<Bfloat16>(features);
    case SumType::kFloat8E5m2:
      return SumFunctionsFor<Float8E5m2>(features);
    case SumType::kFloat8E4m3fn:
      return SumFunctionsFor<Float8E4m3fn>(features);
    case SumType::kFloat8E4m3fnuz:
      return SumFunctionsFor<Float8E4m3fnuz>(features);
    case SumType::kFloat8E4m3b11fnuz:
      return SumFunctionsFor<Float8E4m3b11fnuz>(features);
    case SumType::kFloat8E5m2fnuz:
      break;
  }
  return SumFunctionsFor<Float8E5m2fnuz>(features);
}

int64_t SumTypeBytes(SumType type) {
  return SumFunctionsOf(type).element_bytes;
}

}  // namespace gather_stitch
