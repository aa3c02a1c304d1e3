// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// What the benchmark asks of the machine itself: how much a second thread is
// worth, and what a plain copy costs. Loaded by machine.py.

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

extern "C" {

// Runs `steps` dependent multiplications on each of `threads` threads; returns
// the seconds until the last has finished.
double ArithmeticSeconds(int threads, int64_t steps) {
  uint64_t sum = 0;
  double start = 0;
#pragma omp parallel num_threads(threads) reduction(+ : sum)
  {
#pragma omp barrier
#pragma omp master
    start = omp_get_wtime();
    uint64_t value = omp_get_thread_num();
    for (int64_t i = 0; i < steps; ++i) {
      value = value * 6364136223846793005u + 1442695040888963407u;
    }
    sum += value;
  }
  const double seconds = omp_get_wtime() - start;
  // The sum is never this; the loop must not be optimised away.
  return sum == 42 ? 0 : seconds;
}

// memcpy, each thread a contiguous part, of a size that is worth its start.
void PlainCopy(void* to, const void* from, int64_t bytes, int threads) {
  constexpr int64_t kMinPartBytes = 32 << 10;
  threads = static_cast<int>(std::min<int64_t>(threads, bytes / kMinPartBytes));
  if (threads <= 1) {
    std::memcpy(to, from, bytes);
    return;
  }
#pragma omp parallel num_threads(threads)
  {
    const int64_t part = (bytes / omp_get_num_threads() + 64) / 64 * 64;
    const int64_t begin = std::min(bytes, part * omp_get_thread_num());
    const int64_t end = std::min(bytes, begin + part);
    std::memcpy(static_cast<char*>(to) + begin,
                static_cast<const char*>(from) + begin, end - begin);
  }
}

}  // extern "C"
