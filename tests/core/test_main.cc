// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "tests/core/test_harness.h"
#include "tf_ops/core/cpu_features.h"

namespace gather_stitch {
namespace testing {
namespace {

constexpr int kPrintedFailures = 5;

uint64_t seed = 0;
const char* running_test = "";
int failures_of_test = 0;
std::vector<std::string> notes;

bool IsSelected(const char* name, const std::vector<std::string>& words) {
  if (words.empty()) return true;
  for (const std::string& word : words) {
    if (std::strstr(name, word.c_str()) != nullptr) return true;
  }
  return false;
}

// True where the test passed.
bool Run(const Test& test) {
  running_test = test.name;
  failures_of_test = 0;
  const auto start = std::chrono::steady_clock::now();
  test.run();
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
          .count();
  std::printf("%-4s %s (%.2f s)\n", failures_of_test == 0 ? "ok" : "FAIL",
              test.name, seconds);
  if (failures_of_test > kPrintedFailures) {
    std::printf("  %d failures in all\n", failures_of_test);
  }
  std::fflush(stdout);
  return failures_of_test == 0;
}

}  // namespace

Random TestRandom() {
  return Random(seed ^ std::hash<std::string>()(running_test));
}

void Fail(const char* file, int line, const std::string& words) {
  if (++failures_of_test > kPrintedFailures) return;
  std::printf("%s:%d: %s\n", file, line, words.c_str());
  for (const std::string& note : notes) {
    std::printf("  where %s\n", note.c_str());
  }
}

ScopedNote::ScopedNote(std::string words) { notes.push_back(std::move(words)); }

ScopedNote::~ScopedNote() { notes.pop_back(); }

int Main(int argc, char** argv) {
  std::vector<std::string> words;
  bool has_seed = false;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.rfind("--seed=", 0) == 0) {
      seed = std::strtoull(argument.c_str() + 7, nullptr, 10);
      has_seed = true;
    } else if (argument.rfind("--", 0) == 0) {
      std::fprintf(stderr, "usage: %s [--seed=N] [WORD_OF_A_TEST_NAME...]\n",
                   argv[0]);
      return 2;
    } else {
      words.push_back(argument);
    }
  }
  if (!has_seed) seed = std::random_device()();
  std::printf("--seed=%llu, instruction set %s\n",
              static_cast<unsigned long long>(seed),
              CpuFeaturesName(CpuFeaturesInUse()));

  int passed = 0;
  int failed = 0;
  for (const Test& test : AllTests()) {
    if (!IsSelected(test.name, words)) continue;
    ++(Run(test) ? passed : failed);
  }
  std::printf("%d passed, %d failed\n", passed, failed);
  if (failed > 0) {
    std::printf("repeat with --seed=%llu\n",
                static_cast<unsigned long long>(seed));
  }
  return failed > 0 || passed == 0 ? 1 : 0;
}

}  // namespace testing
}  // namespace gather_stitch

int main(int argc, char** argv) {
  return gather_stitch::testing::Main(argc, argv);
}
