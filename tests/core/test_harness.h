// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// A small test harness.
//
//   TEST(Name) { ... }             registers a test
//   EXPECT_TRUE(condition)         a failure is printed, and the test goes on
//   EXPECT_EQ(actual, expected)
//   SCOPED_NOTE(words)             is added to failures while in scope
//   Random random = TestRandom();  the same numbers for the same seed
//
// The binary takes --seed=N and words that select the tests whose name contains
// one of them.

#ifndef GATHER_STITCH_TESTS_CORE_TEST_HARNESS_H_
#define GATHER_STITCH_TESTS_CORE_TEST_HARNESS_H_

#include <cstdint>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace gather_stitch {
namespace testing {

struct Test {
  const char* name;
  void (*run)();
};

inline std::vector<Test>& AllTests() {
  static std::vector<Test> tests;
  return tests;
}

struct Registration {
  Registration(const char* name, void (*run)()) {
    AllTests().push_back({name, run});
  }
};

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}

  uint64_t Bits() { return engine_(); }
  // In [first, last].
  int64_t Between(int64_t first, int64_t last) {
    return std::uniform_int_distribution<int64_t>(first, last)(engine_);
  }
  bool OneIn(int64_t n) { return Between(1, n) == 1; }
  template <typename T>
  const T& Of(const std::vector<T>& values) {
    return values[Between(0, static_cast<int64_t>(values.size()) - 1)];
  }

 private:
  std::mt19937_64 engine_;
};

// Numbers that depend on --seed and on the name of the running test.
Random TestRandom();

// Prints a failure of the running test, up to a few of each.
void Fail(const char* file, int line, const std::string& words);

class ScopedNote {
 public:
  explicit ScopedNote(std::string words);
  ~ScopedNote();
};

template <typename T>
std::string Printed(const T& value) {
  std::ostringstream stream;
  stream << std::boolalpha << value;
  return stream.str();
}

template <typename T>
std::string Printed(const std::vector<T>& values) {
  std::string printed = "{";
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) printed += ", ";
    if (i == 40) return printed + "...}";
    printed += Printed(values[i]);
  }
  return printed + "}";
}

// Of words what they say, not where they lie.
template <typename A, typename B>
bool AreEqual(const A& a, const B& b) {
  if constexpr (std::is_convertible_v<const A&, std::string_view> &&
                std::is_convertible_v<const B&, std::string_view>) {
    return std::string_view(a) == std::string_view(b);
  } else {
    return a == b;
  }
}

template <typename A, typename B>
void ExpectEqual(const char* file, int line, const char* actual_words,
                 const A& actual, const B& expected) {
  if (AreEqual(actual, expected)) return;
  Fail(file, line,
       std::string(actual_words) + "\n    is       " + Printed(actual) +
           "\n    expected " + Printed(expected));
}

}  // namespace testing
}  // namespace gather_stitch

#define TEST(name)                                                        \
  static void Test##name();                                               \
  static const ::gather_stitch::testing::Registration registration##name( \
      #name, Test##name);                                                 \
  static void Test##name()

#define EXPECT_TRUE(condition)                                        \
  do {                                                                \
    if (!(condition)) {                                               \
      ::gather_stitch::testing::Fail(__FILE__, __LINE__, #condition); \
    }                                                                 \
  } while (false)

#define EXPECT_EQ(actual, expected)                                          \
  ::gather_stitch::testing::ExpectEqual(__FILE__, __LINE__, #actual, actual, \
                                        expected)

#define GATHER_STITCH_JOIN2(a, b) a##b
#define GATHER_STITCH_JOIN(a, b) GATHER_STITCH_JOIN2(a, b)
#define SCOPED_NOTE(words)                                       \
  const ::gather_stitch::testing::ScopedNote GATHER_STITCH_JOIN( \
      note, __LINE__)(words)

#endif  // GATHER_STITCH_TESTS_CORE_TEST_HARNESS_H_
