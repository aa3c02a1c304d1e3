// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// The narrow floats, each bit pattern of them and each rounding between two.

#include "tf_ops/core/numeric_types.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/core/lenders.h"
#include "tests/core/test_harness.h"

namespace gather_stitch {
namespace testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Format {
  std::string name;
  int bits;
  int mantissa_bits;
  int bias;
  bool has_infinity;
  bool has_minus_zero;
};

// What a bit pattern means, by the definition of its format.
double Meaning(const Format& format, uint32_t bits) {
  const uint32_t magnitude_bits = (1u << (format.bits - 1)) - 1;
  const bool is_negative = bits > magnitude_bits;
  const uint32_t magnitude = bits & magnitude_bits;
  const int exponent = static_cast<int>(magnitude >> format.mantissa_bits);
  const uint32_t mantissa = magnitude & ((1u << format.mantissa_bits) - 1);
  if (!format.has_minus_zero) {
    if (is_negative && magnitude == 0) return std::nan("");
  } else if (format.has_infinity) {
    const uint32_t ones = magnitude_bits >> format.mantissa_bits;
    if (exponent == static_cast<int>(ones)) {
      if (mantissa != 0) return std::nan("");
      return is_negative ? -kInfinity : kInfinity;
    }
  } else if (magnitude == magnitude_bits) {
    return std::nan("");
  }
  const double one = std::ldexp(1, format.mantissa_bits);
  const double value =
      exponent == 0
          ? std::ldexp(mantissa, 1 - format.bias - format.mantissa_bits)
          : std::ldexp(one + mantissa,
                       exponent - format.bias - format.mantissa_bits);
  return is_negative ? -value : value;
}

template <typename T>
void TestPatterns(const Format& format) {
  SCOPED_NOTE(format.name);
  const uint32_t patterns = 1u << format.bits;
  for (uint32_t bits = 0; bits < patterns; ++bits) {
    const T number{static_cast<decltype(T::bits)>(bits)};
    const double expected = Meaning(format, bits);
    const float wide = Widen(number);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(wide));
      EXPECT_TRUE(std::isnan(Widen(Narrow<T>(wide))));
      continue;
    }
    EXPECT_EQ(static_cast<double>(wide), expected);
    EXPECT_EQ(std::signbit(wide), std::signbit(expected));
    EXPECT_EQ(static_cast<uint32_t>(Narrow<T>(wide).bits), bits);
  }
}

// Between each number and the next: the middle goes to the even one, and what
// is next to the middle to the nearer one. All of these are float32 numbers.
template <typename T>
void TestRounding(const Format& format) {
  SCOPED_NOTE(format.name);
  const auto narrow = [](float x) {
    return static_cast<uint32_t>(Narrow<T>(x).bits);
  };
  const uint32_t minus = 1u << (format.bits - 1);
  for (uint32_t bits = 0; bits + 1 < minus; ++bits) {
    const double low = Meaning(format, bits);
    double high = Meaning(format, bits + 1);
    if (!std::isfinite(low)) break;
    uint32_t above = bits + 1;
    if (!std::isfinite(high)) {
      // Rounding goes on as if there were a next number, which then is too
      // large.
      high = low + (low - Meaning(format, bits - 1));
    }
    const float middle = static_cast<float>((low + high) / 2);
    EXPECT_EQ(static_cast<double>(middle), (low + high) / 2);
    const uint32_t even = bits % 2 == 0 ? bits : above;
    const float below_middle = std::nextafterf(middle, 0);
    const float above_middle = std::nextafterf(middle, HUGE_VALF);
    EXPECT_EQ(narrow(below_middle), bits);
    EXPECT_EQ(narrow(middle), even);
    EXPECT_EQ(narrow(above_middle), above);
    const bool is_zero = bits == 0 && !format.has_minus_zero;
    EXPECT_EQ(narrow(-below_middle), is_zero ? 0 : bits | minus);
    EXPECT_EQ(narrow(-middle),
              even == 0 && !format.has_minus_zero ? 0 : even | minus);
    if (above != minus) EXPECT_EQ(narrow(-above_middle), above | minus);
  }
}

template <typename T>
void TestSpecials(const Format& format) {
  SCOPED_NOTE(format.name);
  for (const float sign : {1.0f, -1.0f}) {
    for (const float beyond : {std::numeric_limits<float>::infinity(),
                               std::numeric_limits<float>::max()}) {
      const float wide = Widen(Narrow<T>(sign * beyond));
      if (format.has_infinity) {
        EXPECT_EQ(static_cast<double>(wide), sign * kInfinity);
      } else {
        EXPECT_TRUE(std::isnan(wide));
      }
    }
    const float nan = Widen(Narrow<T>(
        std::copysign(std::numeric_limits<float>::quiet_NaN(), sign)));
    EXPECT_TRUE(std::isnan(nan));
    if (format.has_minus_zero) EXPECT_EQ(std::signbit(nan), sign < 0);
    const float tiny =
        Widen(Narrow<T>(sign * std::numeric_limits<float>::denorm_min()));
    if (format.bias < 127) {
      EXPECT_EQ(tiny, 0.0f);
      EXPECT_EQ(std::signbit(tiny), sign < 0 && format.has_minus_zero);
    }
  }
  // The NaNs whose payload is in the bits that are cut off are still NaNs.
  const uint32_t payload = 0x7f800001u;
  EXPECT_TRUE(
      std::isnan(Widen(Narrow<T>(numeric_internal::FloatOfBits(payload)))));
}

template <typename T>
void TestFormat(const Format& format) {
  TestPatterns<T>(format);
  TestRounding<T>(format);
  TestSpecials<T>(format);
}

const Format kHalf = {"half", 16, 10, 15, true, true};
const Format kBfloat16 = {"bfloat16", 16, 7, 127, true, true};

TEST(HalfConversions) { TestFormat<Half>(kHalf); }

TEST(Bfloat16Conversions) { TestFormat<Bfloat16>(kBfloat16); }

TEST(Float8Conversions) {
  TestFormat<Float8E5m2>({"float8_e5m2", 8, 2, 15, true, true});
  TestFormat<Float8E4m3fn>({"float8_e4m3fn", 8, 3, 7, false, true});
  TestFormat<Float8E4m3fnuz>({"float8_e4m3fnuz", 8, 3, 8, false, false});
  TestFormat<Float8E4m3b11fnuz>({"float8_e4m3b11fnuz", 8, 3, 11, false, false});
  TestFormat<Float8E5m2fnuz>({"float8_e5m2fnuz", 8, 2, 16, false, false});
}

TEST(HalfConversionsWhereDenormalsAreFlushed) {
  std::vector<uint32_t> widened;
  std::vector<uint16_t> narrowed;
  const auto convert_all = [&] {
    widened.clear();
    narrowed.clear();
    for (uint32_t bits = 0; bits < 1u << 16; ++bits) {
      const Half half{static_cast<uint16_t>(bits)};
      widened.push_back(numeric_internal::BitsOfFloat(Widen(half)));
      narrowed.push_back(
          Narrow<Half>(numeric_internal::FloatOfBits(bits << 16)).bits);
    }
  };
  convert_all();
  const std::vector<uint32_t> expected_widened = widened;
  const std::vector<uint16_t> expected_narrowed = narrowed;
  {
    const FlushDenormals flush;
    convert_all();
  }
  EXPECT_TRUE(widened == expected_widened);
  EXPECT_TRUE(narrowed == expected_narrowed);
}

}  // namespace
}  // namespace testing
}  // namespace gather_stitch
