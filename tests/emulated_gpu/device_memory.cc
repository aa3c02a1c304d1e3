// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

#include "tests/emulated_gpu/device_memory.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <map>
#include <mutex>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, bytes)
#define ASAN_UNPOISON_MEMORY_REGION(address, bytes)
#endif

namespace emulated_gpu {
namespace {

constexpr uint64_t kPageBytes = 4096;
// Of addresses, which cost nothing: enough to use none of them twice.
constexpr uint64_t kReservedBytes = uint64_t{1} << 42;

struct Pages {
  char* begin;
  uint64_t bytes;
};

struct Memory {
  std::mutex mutex;
  bool has_guard = false;
  char* reserved = nullptr;
  char* next = nullptr;
  std::map<void*, Pages> blocks;
  int accesses = 0;

  bool is_open() const { return !has_guard || accesses > 0; }
};

// Never destroyed: streams work until the process ends.
Memory& memory = *new Memory;
// What the handler of a signal may read.
std::atomic<char*> first_address{nullptr};
std::atomic<int> current_accesses{0};
struct sigaction previous_action;

uint64_t RoundUp(uint64_t bytes, uint64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

void Protect(const Pages& pages, int protection) {
  if (mprotect(pages.begin, pages.bytes, protection) != 0) {
    constexpr char kWords[] = "emulated GPU: mprotect failed\n";
    (void)!write(STDERR_FILENO, kWords, sizeof(kWords) - 1);
    _exit(1);
  }
}

// Says what happened, then lets what handled the signal before do so again.
void ReportFault(int, siginfo_t* info, void*) {
  const char* const begin = first_address;
  const char* const address = static_cast<const char*>(info->si_addr);
  if (begin != nullptr && address >= begin &&
      address < begin + kReservedBytes) {
    constexpr char kByHost[] =
        "emulated GPU: device memory was accessed while no task of a stream "
        "ran\n";
    constexpr char kOutside[] =
        "emulated GPU: device memory was accessed past the end of a block or "
        "after its release\n";
    if (current_accesses == 0) {
      (void)!write(STDERR_FILENO, kByHost, sizeof(kByHost) - 1);
    } else {
      (void)!write(STDERR_FILENO, kOutside, sizeof(kOutside) - 1);
    }
  }
  sigaction(SIGSEGV, &previous_action, nullptr);
}

}  // namespace

void StartMemory(bool guard) {
  const std::lock_guard<std::mutex> lock(memory.mutex);
  memory.has_guard = guard;
  void* const reserved =
      mmap(nullptr, kReservedBytes, PROT_NONE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return;
  memory.reserved = memory.next = static_cast<char*>(reserved);
  first_address = memory.reserved;
  struct sigaction action = {};
  action.sa_sigaction = ReportFault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigaction(SIGSEGV, &action, &previous_action);
}

void* Allocate(uint64_t bytes) {
  const std::lock_guard<std::mutex> lock(memory.mutex);
  if (memory.reserved == nullptr || bytes > kReservedBytes / 2) return nullptr;
  const Pages pages = {memory.next, RoundUp(bytes, kPageBytes)};
  // A page that stays closed follows.
  const uint64_t used = memory.next - memory.reserved;
  if (used + pages.bytes + kPageBytes > kReservedBytes) return nullptr;
  memory.next += pages.bytes + kPageBytes;
  Protect(pages, PROT_READ | PROT_WRITE);
  char* const block = pages.begin + pages.bytes - RoundUp(bytes, kAlignment);
  if (bytes <= kMostFreshBytes) std::memset(block, kFreshByte, bytes);
  ASAN_POISON_MEMORY_REGION(pages.begin, block - pages.begin);
  ASAN_POISON_MEMORY_REGION(block + bytes,
                            pages.begin + pages.bytes - (block + bytes));
  if (!memory.is_open()) Protect(pages, PROT_NONE);
  memory.blocks[block] = pages;
  return block;
}

void Release(void* block) {
  const std::lock_guard<std::mutex> lock(memory.mutex);
  const auto found = memory.blocks.find(block);
  if (found == memory.blocks.end()) return;
  const Pages pages = found->second;
  memory.blocks.erase(found);
  ASAN_UNPOISON_MEMORY_REGION(pages.begin, pages.bytes);
  // A new mapping becomes one with its closed neighbours, of which a process
  // may not have many.
  mmap(pages.begin, pages.bytes, PROT_NONE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

int64_t LiveBlocks() {
  const std::lock_guard<std::mutex> lock(memory.mutex);
  return static_cast<int64_t>(memory.blocks.size());
}

MemoryAccess::MemoryAccess() {
  const std::lock_guard<std::mutex> lock(memory.mutex);
  current_accesses = ++memory.accesses;
  if (!memory.has_guard || memory.accesses > 1) return;
  for (const auto& block : memory.blocks) {
    Protect(block.second, PROT_READ | PROT_WRITE);
  }
}

MemoryAccess::~MemoryAccess() {
  const std::lock_guard<std::mutex> lock(memory.mutex);
  current_accesses = --memory.accesses;
  if (memory.is_open()) return;
  for (const auto& block : memory.blocks) Protect(block.second, PROT_NONE);
}

}  // namespace emulated_gpu
