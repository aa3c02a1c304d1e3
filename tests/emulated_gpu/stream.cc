// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

#include "tests/emulated_gpu/stream.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>

#include "tests/emulated_gpu/device_memory.h"

namespace emulated_gpu {
namespace {

std::atomic<unsigned> streams_made{0};

}  // namespace

Stream::Stream(int64_t delay_us)
    : delay_us_(delay_us),
      random_(streams_made++),
      worker_([this] { Run(); }) {}

Stream::~Stream() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_ending_ = true;
  }
  pushed_.notify_one();
  worker_.join();
}

void Stream::Push(Entry entry) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    entries_.push_back(std::move(entry));
  }
  pushed_.notify_one();
}

void Stream::Run() {
  for (;;) {
    Entry entry;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      pushed_.wait(lock, [this] { return is_ending_ || !entries_.empty(); });
      if (entries_.empty()) return;
      entry = std::move(entries_.front());
      entries_.pop_front();
    }
    if (!entry.accesses_memory) {
      entry.task();
      continue;
    }
    if (delay_us_ > 0) {
      const int64_t least = delay_us_ / 2;
      std::this_thread::sleep_for(
          std::chrono::microseconds(least + random_() % (delay_us_ + 1)));
    }
    const MemoryAccess access;
    entry.task();
  }
}

void Stream::Block() {
  Event event;
  event.Record(this);
  event.BlockHost();
}

void Stream::Fail(const std::string& error) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (error_.empty()) error_ = error;
}

std::string Stream::error() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return error_;
}

void Event::State::WaitFor(uint64_t record) {
  std::unique_lock<std::mutex> lock(mutex);
  passed.wait(lock, [&] { return passed_records >= record; });
}

uint64_t Event::records() {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->records;
}

void Event::Record(Stream* stream) {
  uint64_t record;
  {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    record = ++state_->records;
  }
  stream->EnqueueMark([state = state_, record] {
    {
      const std::lock_guard<std::mutex> lock(state->mutex);
      state->passed_records = std::max(state->passed_records, record);
    }
    state->passed.notify_all();
  });
}

void Event::BlockStream(Stream* stream) {
  stream->EnqueueMark(
      [state = state_, record = records()] { state->WaitFor(record); });
}

void Event::BlockHost() { state_->WaitFor(records()); }

bool Event::IsComplete() {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  return state_->passed_records == state_->records;
}

}  // namespace emulated_gpu
