// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

#include "tests/core/lenders.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "tests/core/test_harness.h"

#ifdef __SSE2__
#include <xmmintrin.h>
#endif

namespace gather_stitch {
namespace testing {

void ReversedFor::Run(int64_t items, int64_t grain, RangeFunction body) const {
  const int64_t range =
      std::max<int64_t>(1, std::min(grain, (items + 12) / 13));
  for (int64_t end = items; end > 0; end -= range) {
    body(std::max<int64_t>(0, end - range), end);
  }
}

void OneItemFor::Run(int64_t items, int64_t /*grain*/,
                     RangeFunction body) const {
  const int64_t range = items / 2000 + 1;
  for (int64_t begin = 0; begin < items; begin += range) {
    body(begin, std::min(begin + range, items));
  }
}

ThreadedFor::ThreadedFor(int threads) {
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([this] { Work(); });
  }
}

ThreadedFor::~ThreadedFor() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stops_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadedFor::WorkOn(Job* job) {
  for (;;) {
    const int64_t begin = job->next.fetch_add(job->range);
    if (begin >= job->items) return;
    (*job->body)(begin, std::min(begin + job->range, job->items));
  }
}

void ThreadedFor::Work() {
  const FlushDenormals flush;
  int64_t last_job = 0;
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] {
      return stops_ || (job_ != nullptr && job_number_ != last_job);
    });
    if (stops_) return;
    last_job = job_number_;
    Job* const job = job_;
    ++working_;
    lock.unlock();
    WorkOn(job);
    lock.lock();
    --working_;
    done_.notify_all();
  }
}

void ThreadedFor::Run(int64_t items, int64_t /*grain*/,
                      RangeFunction body) const {
  if (items == 0) return;
  Job job;
  job.items = items;
  job.range = std::max<int64_t>(1, items / (5 * max_threads()));
  job.body = &body;
  std::unique_lock<std::mutex> lock(mutex_);
  job_ = &job;
  ++job_number_;
  wake_.notify_all();
  // Whoever starts working from now on finds nothing left when all items are
  // taken, so that none of them outlives the job.
  done_.wait(lock, [&] { return job.next >= items && working_ == 0; });
  job_ = nullptr;
}

void InterruptedFor::Run(int64_t items, int64_t grain,
                         RangeFunction body) const {
  const int64_t range = std::max<int64_t>(1, std::min(grain, items / 5));
  for (int64_t begin = 0; begin < items; begin += range) {
    between_();
    body(begin, std::min(begin + range, items));
  }
}

#ifdef __SSE2__
FlushDenormals::FlushDenormals() : saved_(_mm_getcsr()) {
  constexpr uint32_t kFlushToZero = 0x8000;
  constexpr uint32_t kDenormalsAreZero = 0x0040;
  _mm_setcsr(saved_ | kFlushToZero | kDenormalsAreZero);
}
FlushDenormals::~FlushDenormals() { _mm_setcsr(saved_); }
#else
FlushDenormals::FlushDenormals() : saved_(0) {}
FlushDenormals::~FlushDenormals() { static_cast<void>(saved_); }
#endif

void* TestScratch::Allocate(int64_t bytes) {
  EXPECT_TRUE(bytes > 0);
  if (allocations_++ == refused_allocation_) return nullptr;
  bytes_ += bytes;
  // An allocation of its own, so that a sanitizer knows where it ends.
  pieces_.emplace_back(
      static_cast<char*>(::operator new(bytes, std::align_val_t{kAlignment})));
  std::memset(pieces_.back().get(), 0x5b, static_cast<size_t>(bytes));
  return pieces_.back().get();
}

}  // namespace testing
}  // namespace gather_stitch
