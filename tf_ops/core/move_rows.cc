// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

#include "tf_ops/core/move_rows.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "tf_ops/core/cost.h"
#include "tf_ops/core/cpu_features.h"
#include "tf_ops/core/indices.h"

namespace gather_stitch {
namespace {

// A row that is all zeros and read as any other; longer rows of zeros are
// written by memset, where a branch a row costs nothing.
constexpr int64_t kZeroRowBytes = 4096;
alignas(64) constexpr char kZeroRowStorage[kZeroRowBytes] = {};

// Reads are announced ahead where the source is larger than half of an L2
// cache: a row of 100 bytes out of 13 MB then takes 41 ns instead of 80, one of
// 256 bytes 71 instead of 95. Shorter rows gain nothing, for enough of them are
// in flight, nor do rows so long that the processor reads ahead by itself.
constexpr int64_t kPrefetchSourceBytes = 256 * 1024;
constexpr int64_t kMinPrefetchRowBytes = 32;
constexpr int64_t kMaxPrefetchRowBytes = 8 * 1024;

// As many rows ahead as have this many bytes, within limits. Rows of 4 KiB take
// 10% longer without, those of 1 KiB 20%.
constexpr int64_t kPrefetchBytes = 4096;
constexpr int64_t kMinPrefetchRows = 2;
constexpr int64_t kMaxPrefetchRows = 12;

// An output larger than the last-level cache is written past the caches, which
// else read each line before it is written: 0.7 of the time for rows of 4 KiB,
// 0.8 for rows of 64 and 256 bytes.
constexpr int64_t kStreamRowBytes = 64;

// Copies of a row, inline. Sizes between those of a register are covered by two
// copies that overlap.

template <int kBytes>
struct CopyExactly {
  static void Copy(const char* source, int64_t /*row_bytes*/, char* output) {
    std::memcpy(output, source, kBytes);
  }
  static constexpr int64_t Stride(int64_t /*row_bytes*/) { return kBytes; }
};

// kBytes <= row_bytes <= 2 * kBytes
template <int kBytes>
struct CopyHalves {
  static void Copy(const char* source, int64_t row_bytes, char* output) {
    char head[kBytes];
    char tail[kBytes];
    std::memcpy(head, source, kBytes);
    std::memcpy(tail, source + row_bytes - kBytes, kBytes);
    std::memcpy(output, head, kBytes);
    std::memcpy(output + row_bytes - kBytes, tail, kBytes);
  }
  static constexpr int64_t Stride(int64_t row_bytes) { return row_bytes; }
};

struct CopyAny {
  static void Copy(const char* source, int64_t row_bytes, char* output) {
    std::memcpy(output, source, static_cast<size_t>(row_bytes));
  }
  static constexpr int64_t Stride(int64_t row_bytes) { return row_bytes; }
};

#ifdef __SSE2__
constexpr bool kCanStream = true;

// Past the caches, where the output is aligned; row_bytes is a multiple of 16.
struct CopyPastCaches {
  static void Copy(const char* source, int64_t row_bytes, char* output) {
    if (reinterpret_cast<uintptr_t>(output) % 16 != 0) {
      std::memcpy(output, source, static_cast<size_t>(row_bytes));
      return;
    }
    for (int64_t k = 0; k < row_bytes; k += 16) {
      _mm_stream_si128(
          reinterpret_cast<__m128i*>(output + k),
          _mm_loadu_si128(reinterpret_cast<const __m128i*>(source + k)));
    }
  }
  static constexpr int64_t Stride(int64_t row_bytes) { return row_bytes; }
};

// Such copies are seen by other threads after this.
void FinishCopiesPastCaches() { _mm_sfence(); }
#else
constexpr bool kCanStream = false;
using CopyPastCaches = CopyAny;
void FinishCopiesPastCaches() {}
#endif

template <typename Row>
void Prefetch(const char* source, int64_t row_bytes) {
  const int64_t bytes = Row::Stride(row_bytes);
  for (int64_t k = 0; k < bytes; k += 64) __builtin_prefetch(source + k);
}

int64_t PrefetchRows(int64_t row_bytes) {
  return std::clamp(kPrefetchBytes / row_bytes, kMinPrefetchRows,
                    kMaxPrefetchRows);
}

template <typename Row, bool kPrefetch>
void MoveNumberedRows(const char* table, const int64_t* numbers, int64_t count,
                      int64_t row_bytes, char* __restrict output) {
  const int64_t stride = Row::Stride(row_bytes);
  int64_t i = 0;
  if constexpr (kPrefetch) {
    const int64_t ahead = PrefetchRows(stride);
    for (; i + ahead < count; ++i) {
      Prefetch<Row>(table + numbers[i + ahead] * stride, row_bytes);
      Row::Copy(table + numbers[i] * stride, row_bytes, output + i * stride);
    }
  }
  for (; i < count; ++i) {
    Row::Copy(table + numbers[i] * stride, row_bytes, output + i * stride);
  }
}

template <typename Row, bool kPrefetch>
void MovePointedRows(const char* const* sources, int64_t count,
                     int64_t row_bytes, char* __restrict output) {
  const int64_t stride = Row::Stride(row_bytes);
  int64_t i = 0;
  if constexpr (kPrefetch) {
    const int64_t ahead = PrefetchRows(stride);
    for (; i + ahead < count; ++i) {
      Prefetch<Row>(sources[i + ahead], row_bytes);
      Row::Copy(sources[i], row_bytes, output + i * stride);
    }
  }
  for (; i < count; ++i) {
    Row::Copy(sources[i], row_bytes, output + i * stride);
  }
}

template <typename Row>
void ScatterRows(const char* source, const int64_t* offsets,
                 const int64_t* numbers, int64_t count, int64_t row_bytes,
                 char* output) {
  const int64_t stride = Row::Stride(row_bytes);
  if (offsets == nullptr) {
    for (int64_t i = 0; i < count; ++i) {
      Row::Copy(source + i * stride, row_bytes, output + numbers[i] * stride);
    }
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    Row::Copy(source + offsets[i] * stride, row_bytes,
              output + numbers[i] * stride);
  }
}

struct MoveFunctions {
  RowMover::NumberedFunction numbered;
  RowMover::PointedFunction pointed;
  RowMover::ScatterFunction scatter;
};

template <typename Row>
MoveFunctions FunctionsFor(bool prefetch) {
  if (prefetch) {
    return {MoveNumberedRows<Row, true>, MovePointedRows<Row, true>,
            ScatterRows<Row>};
  }
  return {MoveNumberedRows<Row, false>, MovePointedRows<Row, false>,
          ScatterRows<Row>};
}

MoveFunctions ChooseFunctions(int64_t row_bytes, bool prefetch) {
  switch (row_bytes) {
    case 1:
      return FunctionsFor<CopyExactly<1>>(prefetch);
    case 2:
      return FunctionsFor<CopyExactly<2>>(prefetch);
    case 4:
      return FunctionsFor<CopyExactly<4>>(prefetch);
    case 8:
      return FunctionsFor<CopyExactly<8>>(prefetch);
    case 16:
      return FunctionsFor<CopyExactly<16>>(prefetch);
    case 32:
      return FunctionsFor<CopyExactly<32>>(prefetch);
    case 64:
      return FunctionsFor<CopyExactly<64>>(prefetch);
    case 128:
      return FunctionsFor<CopyExactly<128>>(prefetch);
    default:
      break;
  }
  if (row_bytes < 4) return FunctionsFor<CopyHalves<2>>(prefetch);
  if (row_bytes < 8) return FunctionsFor<CopyHalves<4>>(prefetch);
  if (row_bytes < 16) return FunctionsFor<CopyHalves<8>>(prefetch);
  if (row_bytes < 32) return FunctionsFor<CopyHalves<16>>(prefetch);
  if (row_bytes < 64) return FunctionsFor<CopyHalves<32>>(prefetch);
  if (row_bytes < 128) return FunctionsFor<CopyHalves<64>>(prefetch);
  return FunctionsFor<CopyAny>(prefetch);
}

// True where the rows lie one behind the other, so that one copy moves them.
// Where they do not the first comparison nearly always says so.
bool IsOneRun(const int64_t* numbers, int64_t count) {
  if (numbers[count - 1] - numbers[0] != count - 1) return false;
  int64_t breaks = 0;
  for (int64_t i = 1; i < count; ++i) {
    breaks |= numbers[i] - numbers[i - 1] - 1;
  }
  return breaks == 0;
}

}  // namespace

RowMover::RowMover(int64_t row_bytes, int64_t source_bytes,
                   int64_t output_bytes)
    : row_bytes_(row_bytes),
      zero_row_(row_bytes <= kZeroRowBytes ? kZeroRowStorage : nullptr),
      is_past_caches_(kCanStream && row_bytes >= kStreamRowBytes &&
                      row_bytes % 16 == 0 &&
                      output_bytes > LastLevelCacheBytes()) {
  const bool prefetch = row_bytes >= kMinPrefetchRowBytes &&
                        row_bytes <= kMaxPrefetchRowBytes &&
                        source_bytes > kPrefetchSourceBytes;
  const MoveFunctions functions = is_past_caches_
                                      ? FunctionsFor<CopyPastCaches>(prefetch)
                                      : ChooseFunctions(row_bytes, prefetch);
  numbered_ = functions.numbered;
  pointed_ = functions.pointed;
  scatter_ = functions.scatter;
}

double RowMover::row_nanoseconds() const {
  return 2 + static_cast<double>(row_bytes_) * kNanosecondsPerByte;
}

void RowMover::MoveNumbered(const char* table, const int64_t* numbers,
                            int64_t count, bool has_zero_rows,
                            char* output) const {
  if (has_zero_rows) {
    constexpr int64_t kPointers = 64;
    const char* sources[kPointers];
    for (int64_t begin = 0; begin < count; begin += kPointers) {
      const int64_t pointers = std::min(kPointers, count - begin);
      for (int64_t i = 0; i < pointers; ++i) {
        const int64_t number = numbers[begin + i];
        sources[i] =
            number == kZeroRow ? zero_row_ : table + number * row_bytes_;
      }
      MovePointed(sources, pointers, output + begin * row_bytes_);
    }
    return;
  }
  if (IsOneRun(numbers, count)) {
    const char* const source = table + numbers[0] * row_bytes_;
    if (is_past_caches_) {
      CopyPastCaches::Copy(source, count * row_bytes_, output);
    } else {
      std::memcpy(output, source, static_cast<size_t>(count * row_bytes_));
    }
  } else {
    numbered_(table, numbers, count, row_bytes_, output);
  }
  if (is_past_caches_) FinishCopiesPastCaches();
}

void RowMover::MovePointed(const char* const* sources, int64_t count,
                           char* output) const {
  if (zero_row_ != nullptr) {
    pointed_(sources, count, row_bytes_, output);
  } else {
    for (int64_t i = 0; i < count; ++i) {
      char* const row = output + i * row_bytes_;
      if (sources[i] == nullptr) {
        std::memset(row, 0, static_cast<size_t>(row_bytes_));
      } else {
        pointed_(sources + i, 1, row_bytes_, row);
      }
    }
  }
  if (is_past_caches_) FinishCopiesPastCaches();
}

void RowMover::Scatter(const char* source, const int64_t* offsets,
                       const int64_t* numbers, int64_t count,
                       char* output) const {
  if (offsets == nullptr && IsOneRun(numbers, count)) {
    std::memcpy(output + numbers[0] * row_bytes_, source,
                static_cast<size_t>(count * row_bytes_));
    return;
  }
  scatter_(source, offsets, numbers, count, row_bytes_, output);
}

void FillZeros(int64_t bytes, bool past_caches, char* output) {
  int64_t filled = 0;
#ifdef __SSE2__
  if (past_caches) {
    // Whole lines: one store a turn took 1.4 times as long where the loop
    // itself crossed a line.
    constexpr int64_t kLine = 64;
    const auto address = reinterpret_cast<uintptr_t>(output);
    filled = std::min(bytes, static_cast<int64_t>(-address % kLine));
    std::memset(output, 0, static_cast<size_t>(filled));
    const __m128i zero = _mm_setzero_si128();
    for (; filled + kLine <= bytes; filled += kLine) {
      auto* const line = reinterpret_cast<__m128i*>(output + filled);
      _mm_stream_si128(line, zero);
      _mm_stream_si128(line + 1, zero);
      _mm_stream_si128(line + 2, zero);
      _mm_stream_si128(line + 3, zero);
    }
    FinishCopiesPastCaches();
  }
#else
  static_cast<void>(past_caches);
#endif
  std::memset(output + filled, 0, static_cast<size_t>(bytes - filled));
}

void FillZeros(const ParallelFor& parallel, int64_t bytes, void* output) {
  char* const out = static_cast<char*>(output);
  const bool past_caches = bytes > LastLevelCacheBytes();
  parallel.Run(bytes, GrainOf(kNanosecondsPerByte),
               [=](int64_t begin, int64_t end) {
                 FillZeros(end - begin, past_caches, out + begin);
               });
}

}  // namespace gather_stitch
