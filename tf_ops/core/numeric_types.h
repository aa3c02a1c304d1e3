// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// The 16-bit and 8-bit floats, as bits and as float32.
//
//   Widen(x): the same number. A NaN stays a NaN of the same sign.
//   Narrow<T>(x): the nearest number of T, ties to even. What is beyond the
//     largest number is infinity, or NaN where T has no infinity.
//
// Neither depends on whether the thread flushes denormal float32 numbers to
// zero.

#ifndef GATHER_STITCH_CORE_NUMERIC_TYPES_H_
#define GATHER_STITCH_CORE_NUMERIC_TYPES_H_

#include <array>
#include <cstdint>
#include <cstring>

#include "tf_ops/core/host_device.h"

namespace gather_stitch {

struct Half {
  uint16_t bits;
};

struct Bfloat16 {
  uint16_t bits;
};

// Which bit patterns of an 8-bit float are not finite numbers.
enum class Float8Specials {
  kIeee,          // infinities and NaNs, as in the wider types
  kOneNan,        // "fn": the two patterns of all ones are NaN
  kUnsignedZero,  // "fnuz": the pattern of minus zero is NaN
};

template <int kMantissaBits, int kExponentBias, Float8Specials kSpecials>
struct Float8 {
  uint8_t bits;
};

using Float8E5m2 = Float8<2, 15, Float8Specials::kIeee>;
using Float8E4m3fn = Float8<3, 7, Float8Specials::kOneNan>;
using Float8E4m3fnuz = Float8<3, 8, Float8Specials::kUnsignedZero>;
using Float8E4m3b11fnuz = Float8<3, 11, Float8Specials::kUnsignedZero>;
using Float8E5m2fnuz = Float8<2, 16, Float8Specials::kUnsignedZero>;

namespace numeric_internal {

GATHER_STITCH_HOST_DEVICE inline float FloatOfBits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

GATHER_STITCH_HOST_DEVICE inline uint32_t BitsOfFloat(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

inline constexpr uint32_t kFloatSign = 0x80000000u;
inline constexpr uint32_t kFloatInfinity = 0x7f800000u;
inline constexpr uint32_t kFloatQuietNan = 0x7fc00000u;

template <int kMantissaBits, int kExponentBias, Float8Specials kSpecials>
GATHER_STITCH_HOST_DEVICE constexpr uint32_t Float8ToFloatBits(uint32_t bits) {
  const uint32_t sign = (bits & 0x80u) << 24;
  const uint32_t magnitude = bits & 0x7fu;
  constexpr uint32_t kImplicitOne = 1u << kMantissaBits;
  constexpr uint32_t kIeeeInfinity = 0x80u - kImplicitOne;
  if (kSpecials == Float8Specials::kIeee && magnitude >= kIeeeInfinity) {
    return sign |
           (magnitude == kIeeeInfinity ? kFloatInfinity : kFloatQuietNan);
  }
  if (kSpecials == Float8Specials::kOneNan && magnitude == 0x7fu) {
    return sign | kFloatQuietNan;
  }
  if (kSpecials == Float8Specials::kUnsignedZero && bits == 0x80u) {
    return sign | kFloatQuietNan;
  }
  if (magnitude == 0) return sign;
  uint32_t exponent = magnitude >> kMantissaBits;
  uint32_t significand = magnitude & (kImplicitOne - 1);
  if (exponent == 0) {
    exponent = 1;
  } else {
    significand |= kImplicitOne;
  }
  exponent += 127 - kExponentBias;
  for (; significand < kImplicitOne; significand *= 2) --exponent;
  return sign | exponent << 23 |
         (significand - kImplicitOne) << (23 - kMantissaBits);
}

template <int kMantissaBits, int kExponentBias, Float8Specials kSpecials>
constexpr std::array<uint32_t, 256> Float8Table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t bits = 0; bits < 256; ++bits) {
    table[bits] =
        Float8ToFloatBits<kMantissaBits, kExponentBias, kSpecials>(bits);
  }
  return table;
}

template <int kMantissaBits, int kExponentBias, Float8Specials kSpecials>
inline constexpr std::array<uint32_t, 256> kFloat8Table =
    Float8Table<kMantissaBits, kExponentBias, kSpecials>();

template <int kMantissaBits, int kExponentBias, Float8Specials kSpecials>
GATHER_STITCH_HOST_DEVICE uint8_t Float8FromFloatBits(uint32_t float_bits) {
  const uint32_t magnitude = float_bits & ~kFloatSign;
  const uint32_t sign = float_bits >> 24 & 0x80u;
  constexpr uint32_t kImplicitOne = 1u << kMantissaBits;
  constexpr uint32_t kLargest = kSpecials == Float8Specials::kIeee
                                    ? 0x7fu - kImplicitOne
                                : kSpecials == Float8Specials::kOneNan ? 0x7eu
                                                                       : 0x7fu;
  constexpr bool kUnsigned = kSpecials == Float8Specials::kUnsignedZero;
  const uint32_t nan =
      kUnsigned ? 0x80u
                : sign | (kSpecials == Float8Specials::kIeee
                              ? 0x80u - kImplicitOne + kImplicitOne / 2
                              : 0x7fu);
  if (magnitude > kFloatInfinity) return static_cast<uint8_t>(nan);

  // A denormal float32 is far below half the smallest float8.
  const int exponent = static_cast<int>(magnitude >> 23) - 127;
  const uint32_t significand = (magnitude & 0x7fffffu) | 0x800000u;
  constexpr int kLowestExponent = 1 - kExponentBias;
  const bool is_denormal = exponent < kLowestExponent;
  const int dropped_bits =
      23 - kMantissaBits + (is_denormal ? kLowestExponent - exponent : 0);
  uint32_t rounded = 0;
  if (dropped_bits <= 24) {
    const uint32_t kept = significand >> dropped_bits;
    const uint32_t dropped = significand & ((1u << dropped_bits) - 1);
    const uint32_t half = 1u << (dropped_bits - 1);
    rounded = kept + (dropped > half || (dropped == half && (kept & 1)));
  }
  // A carry out of the significand raises the exponent, as it should.
  uint32_t result = rounded;
  if (!is_denormal) {
    result += static_cast<uint32_t>(exponent + kExponentBias - 1)
              << kMantissaBits;
  }
  if (result > kLargest) {
    if (kSpecials != Float8Specials::kIeee) return static_cast<uint8_t>(nan);
    result = kLargest + 1;
  }
  if (kUnsigned && result == 0) return 0;
  return static_cast<uint8_t>(sign | result);
}

}  // namespace numeric_internal

GATHER_STITCH_HOST_DEVICE inline float Widen(Bfloat16 x) {
  return numeric_internal::FloatOfBits(static_cast<uint32_t>(x.bits) << 16);
}

GATHER_STITCH_HOST_DEVICE inline float Widen(Half x) {
  using numeric_internal::BitsOfFloat;
  using numeric_internal::FloatOfBits;
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000u) << 16;
  const uint32_t shifted = static_cast<uint32_t>(x.bits & 0x7fffu) << 13;
  constexpr uint32_t kRebias = (127u - 15u) << 23;
  const bool is_denormal = shifted < 1u << 23;
  const bool is_special = shifted >= 31u << 23;
  // A denormal half, given the exponent of the smallest normal one, is too
  // large by exactly that one. Both and their difference are normal float32.
  const float denormal = FloatOfBits(shifted + kRebias + (1u << 23)) -
                         FloatOfBits(kRebias + (1u << 23));
  const uint32_t normal = shifted + kRebias + (is_special ? kRebias : 0u);
  return FloatOfBits(sign | (is_denormal ? BitsOfFloat(denormal) : normal));
}

template <int kMantissaBits, int kExponentBias, Float8Specials kSpecials>
GATHER_STITCH_HOST_DEVICE float Widen(
    Float8<kMantissaBits, kExponentBias, kSpecials> x) {
#ifdef __CUDA_ARCH__  // Has no table in its memory.
  return numeric_internal::FloatOfBits(
      numeric_internal::Float8ToFloatBits<kMantissaBits, kExponentBias,
                                          kSpecials>(x.bits));
#else
  return numeric_internal::FloatOfBits(
      numeric_internal::kFloat8Table<kMantissaBits, kExponentBias,
                                     kSpecials>[x.bits]);
#endif
}

namespace numeric_internal {

// One function object for each type, since a function template can not be
// specialised in part.
template <typename T>
struct Narrower;

template <>
struct Narrower<Bfloat16> {
  GATHER_STITCH_HOST_DEVICE static Bfloat16 FromBits(uint32_t bits) {
    const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    const uint32_t nan = (bits >> 16 & 0x8000u) | 0x7fc0u;
    const bool is_nan = (bits & ~kFloatSign) > kFloatInfinity;
    return {static_cast<uint16_t>(is_nan ? nan : rounded)};
  }
};

template <>
struct Narrower<Half> {
  GATHER_STITCH_HOST_DEVICE static Half FromBits(uint32_t bits) {
    const uint32_t sign = bits >> 16 & 0x8000u;
    const uint32_t magnitude = bits & ~kFloatSign;
    constexpr uint32_t kSmallestNormal = (127u - 14u) << 23;
    constexpr uint32_t kBeyondLargest = (127u + 16u) << 23;
    // The sum with 1/2 has the spacing of denormal halves, so the addition
    // rounds to it.
    const uint32_t denormal =
        BitsOfFloat(FloatOfBits(magnitude) + 0.5f) - BitsOfFloat(0.5f);
    const uint32_t normal =
        (magnitude - ((127u - 15u) << 23) + 0xfffu + (magnitude >> 13 & 1u)) >>
        13;
    const uint32_t special = magnitude > kFloatInfinity
                                 ? 0x7e00u | (magnitude >> 13 & 0x3ffu)
                                 : 0x7c00u;
    const uint32_t finite = magnitude < kSmallestNormal ? denormal : normal;
    return {static_cast<uint16_t>(
        sign | (magnitude >= kBeyondLargest ? special : finite))};
  }
};

template <int kMantissaBits, int kExponentBias, Float8Specials kSpecials>
struct Narrower<Float8<kMantissaBits, kExponentBias, kSpecials>> {
  GATHER_STITCH_HOST_DEVICE static Float8<kMantissaBits, kExponentBias,
                                          kSpecials>
  FromBits(uint32_t bits) {
    return {Float8FromFloatBits<kMantissaBits, kExponentBias, kSpecials>(bits)};
  }
};

}  // namespace numeric_internal

template <typename T>
GATHER_STITCH_HOST_DEVICE T Narrow(float x) {
  return numeric_internal::Narrower<T>::FromBits(
      numeric_internal::BitsOfFloat(x));
}

}  // namespace gather_stitch

#endif  // GATHER_STITCH_CORE_NUMERIC_TYPES_H_
