// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// A PluggableDevice of type GPU over host memory, on which DEVICE_GPU OpKernels
// run where there is no GPU.
//
// Streams are asynchronous, each with a thread of its own. Every tensor is a
// block of its own, released once all streams have passed what they had to do
// when TensorFlow let go of it. Settings are environment variables, read when
// the library is loaded:
//
//   EMULATED_GPU_DEVICES    how many devices there are; 2
//   EMULATED_GPU_DELAY_US   microseconds that a task of a stream waits before
//                           it runs, give or take half of it; 0
//   EMULATED_GPU_GUARD      1: device memory can be accessed only while a task
//                           of a stream runs; 0
//
// stream->platform_specific_handle() has no stream: that is CUDA's.
//
//   int64_t emulated_gpu_live_blocks()
//
// found with dlsym, is how many blocks of device memory are not released yet,
// after all streams have done what they had to do.

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "tensorflow/c/experimental/stream_executor/stream_executor.h"
#include "tests/emulated_gpu/device_memory.h"
#include "tests/emulated_gpu/stream.h"

struct SP_Stream_st {
  explicit SP_Stream_st(int64_t delay_us) : stream(delay_us) {}
  emulated_gpu::Stream stream;
};

struct SP_Event_st {
  emulated_gpu::Event event;
};

struct SP_Timer_st {
  std::chrono::steady_clock::time_point start;
  std::chrono::steady_clock::time_point stop;
};

namespace emulated_gpu {
namespace {

// What device_memory_usage says that there is.
constexpr int64_t kMemoryBytes = int64_t{1} << 36;

struct Settings {
  int64_t devices = 2;
  int64_t delay_us = 0;
  int64_t guard = 0;
};

Settings settings;

// Those of all devices: a copy from one to another may be in a stream of
// either. Never destroyed, for streams work until the process ends.
struct Streams {
  std::mutex mutex;
  std::set<SP_Stream> all;
};
Streams& streams = *new Streams;

bool ReadSetting(const char* name, int64_t most, int64_t* value,
                 TF_Status* status) {
  const char* const text = std::getenv(name);
  if (text == nullptr) return true;
  char* end;
  const long long read = std::strtoll(text, &end, 10);
  if (*text != '\0' && *end == '\0' && read >= 0 && read <= most) {
    *value = read;
    return true;
  }
  const std::string words = std::string(name) + "=" + text +
                            " is no number in [0, " + std::to_string(most) +
                            "]";
  TF_SetStatus(status, TF_INVALID_ARGUMENT, words.c_str());
  return false;
}

// ---- Memory -----------------------------------------------------------------

void AllocateBlock(const SP_Device*, uint64_t bytes, int64_t,
                   SP_DeviceMemoryBase* block) {
  block->struct_size = SP_DEVICE_MEMORY_BASE_STRUCT_SIZE;
  block->opaque = Allocate(bytes);
  block->size = block->opaque == nullptr ? 0 : bytes;
  block->payload = 0;
}

void Deallocate(const SP_Device*, SP_DeviceMemoryBase* block) {
  if (block->opaque == nullptr) return;
  // Gone when the last stream has dropped its mark.
  const std::shared_ptr<void> last_use(block->opaque, Release);
  const std::lock_guard<std::mutex> lock(streams.mutex);
  for (const SP_Stream stream : streams.all) {
    stream->stream.EnqueueMark([last_use] {});
  }
}

void* AllocateHost(const SP_Device*, uint64_t bytes) {
  return std::aligned_alloc(kAlignment,
                            (bytes + kAlignment - 1) / kAlignment * kAlignment);
}

void DeallocateHost(const SP_Device*, void* memory) { std::free(memory); }

TF_Bool GetAllocatorStats(const SP_Device*, SP_AllocatorStats*) {
  return false;
}

TF_Bool GetMemoryUsage(const SP_Device*, int64_t* free, int64_t* total) {
  *free = *total = kMemoryBytes;
  return true;
}

// ---- Streams, events, timers ------------------------------------------------

void CreateStream(const SP_Device*, SP_Stream* stream, TF_Status*) {
  *stream = new SP_Stream_st(settings.delay_us);
  const std::lock_guard<std::mutex> lock(streams.mutex);
  streams.all.insert(*stream);
}

void DestroyStream(const SP_Device*, SP_Stream stream) {
  {
    const std::lock_guard<std::mutex> lock(streams.mutex);
    streams.all.erase(stream);
  }
  delete stream;
}

void CreateStreamDependency(const SP_Device*, SP_Stream dependent,
                            SP_Stream other, TF_Status*) {
  Event event;
  event.Record(&other->stream);
  event.BlockStream(&dependent->stream);
}

void GetStreamStatus(const SP_Device*, SP_Stream stream, TF_Status* status) {
  const std::string error = stream->stream.error();
  if (!error.empty()) TF_SetStatus(status, TF_INTERNAL, error.c_str());
}

void BlockHostUntilDone(const SP_Device* device, SP_Stream stream,
                        TF_Status* status) {
  stream->stream.Block();
  GetStreamStatus(device, stream, status);
}

void SynchronizeAllActivity(const SP_Device*, TF_Status*) {
  std::vector<Event> events;
  {
    const std::lock_guard<std::mutex> lock(streams.mutex);
    events.resize(streams.all.size());
    auto event = events.begin();
    for (const SP_Stream stream : streams.all) {
      (event++)->Record(&stream->stream);
    }
  }
  // Without the lock, which tasks take that release memory.
  for (Event& event : events) event.BlockHost();
}

void CreateEvent(const SP_Device*, SP_Event* event, TF_Status*) {
  *event = new SP_Event_st;
}

void DestroyEvent(const SP_Device*, SP_Event event) { delete event; }

SE_EventStatus GetEventStatus(const SP_Device*, SP_Event event) {
  return event->event.IsComplete() ? SE_EVENT_COMPLETE : SE_EVENT_PENDING;
}

void RecordEvent(const SP_Device*, SP_Stream stream, SP_Event event,
                 TF_Status*) {
  event->event.Record(&stream->stream);
}

void WaitForEvent(const SP_Device*, SP_Stream stream, SP_Event event,
                  TF_Status*) {
  event->event.BlockStream(&stream->stream);
}

void BlockHostForEvent(const SP_Device*, SP_Event event, TF_Status*) {
  event->event.BlockHost();
}

void CreateTimer(const SP_Device*, SP_Timer* timer, TF_Status*) {
  *timer = new SP_Timer_st;
}

void DestroyTimer(const SP_Device*, SP_Timer timer) { delete timer; }

void StartTimer(const SP_Device*, SP_Stream stream, SP_Timer timer,
                TF_Status*) {
  stream->stream.EnqueueMark(
      [timer] { timer->start = std::chrono::steady_clock::now(); });
}

void StopTimer(const SP_Device*, SP_Stream stream, SP_Timer timer, TF_Status*) {
  stream->stream.EnqueueMark(
      [timer] { timer->stop = std::chrono::steady_clock::now(); });
}

uint64_t Nanoseconds(SP_Timer timer) {
  return std::chrono::nanoseconds(timer->stop - timer->start).count();
}

// ---- Tasks ------------------------------------------------------------------

void CopyToHost(const SP_Device*, SP_Stream stream, void* to,
                const SP_DeviceMemoryBase* from, uint64_t bytes, TF_Status*) {
  stream->stream.Enqueue(
      [=, from = from->opaque] { std::memcpy(to, from, bytes); });
}

void CopyFromHost(const SP_Device*, SP_Stream stream, SP_DeviceMemoryBase* to,
                  const void* from, uint64_t bytes, TF_Status*) {
  stream->stream.Enqueue(
      [=, to = to->opaque] { std::memcpy(to, from, bytes); });
}

void CopyOnDevice(const SP_Device*, SP_Stream stream, SP_DeviceMemoryBase* to,
                  const SP_DeviceMemoryBase* from, uint64_t bytes, TF_Status*) {
  stream->stream.Enqueue([to = to->opaque, from = from->opaque, bytes] {
    std::memmove(to, from, bytes);
  });
}

void CopyToHostNow(const SP_Device*, void* to, const SP_DeviceMemoryBase* from,
                   uint64_t bytes, TF_Status*) {
  const MemoryAccess access;
  std::memcpy(to, from->opaque, bytes);
}

void CopyFromHostNow(const SP_Device*, SP_DeviceMemoryBase* to,
                     const void* from, uint64_t bytes, TF_Status*) {
  const MemoryAccess access;
  std::memcpy(to->opaque, from, bytes);
}

void CopyOnDeviceNow(const SP_Device*, SP_DeviceMemoryBase* to,
                     const SP_DeviceMemoryBase* from, uint64_t bytes,
                     TF_Status*) {
  const MemoryAccess access;
  std::memmove(to->opaque, from->opaque, bytes);
}

void Fill(const SP_Device*, SP_Stream stream, SP_DeviceMemoryBase* to,
          uint8_t pattern, uint64_t bytes, TF_Status*) {
  stream->stream.Enqueue(
      [=, to = to->opaque] { std::memset(to, pattern, bytes); });
}

void FillZeros(const SP_Device* device, SP_Stream stream,
               SP_DeviceMemoryBase* to, uint64_t bytes, TF_Status* status) {
  Fill(device, stream, to, 0, bytes, status);
}

void Fill32(const SP_Device*, SP_Stream stream, SP_DeviceMemoryBase* to,
            uint32_t pattern, uint64_t bytes, TF_Status*) {
  stream->stream.Enqueue([to = static_cast<char*>(to->opaque), pattern, bytes] {
    for (uint64_t i = 0; i + sizeof(pattern) <= bytes; i += sizeof(pattern)) {
      std::memcpy(to + i, &pattern, sizeof(pattern));
    }
  });
}

TF_Bool HostCallback(const SP_Device*, SP_Stream stream,
                     SE_StatusCallbackFn callback, void* argument) {
  stream->stream.Enqueue([=] {
    TF_Status* const status = TF_NewStatus();
    callback(argument, status);
    if (TF_GetCode(status) != TF_OK) stream->stream.Fail(TF_Message(status));
    TF_DeleteStatus(status);
  });
  return true;
}

// ---- What TensorFlow asks for when it loads the library ---------------------

void GetDeviceCount(const SP_Platform*, int* count, TF_Status*) {
  *count = static_cast<int>(settings.devices);
}

void CreateDevice(const SP_Platform*, SE_CreateDeviceParams* params,
                  TF_Status*) {
  params->device->struct_size = SP_DEVICE_STRUCT_SIZE;
  params->device->ordinal = params->ordinal;
  params->device->hardware_name = "emulated GPU";
  params->device->device_vendor = "none";
}

void DestroyDevice(const SP_Platform*, SP_Device*) {}

void CreateDeviceFns(const SP_Platform*, SE_CreateDeviceFnsParams* params,
                     TF_Status*) {
  *params->device_fns = {};
  params->device_fns->struct_size = SP_DEVICE_FNS_STRUCT_SIZE;
}

void DestroyDeviceFns(const SP_Platform*, SP_DeviceFns*) {}

void CreateTimerFns(const SP_Platform*, SP_TimerFns* timer_fns, TF_Status*) {
  timer_fns->struct_size = SP_TIMER_FNS_STRUCT_SIZE;
  timer_fns->nanoseconds = Nanoseconds;
}

void DestroyTimerFns(const SP_Platform*, SP_TimerFns*) {}

void CreateStreamExecutor(const SP_Platform*,
                          SE_CreateStreamExecutorParams* params, TF_Status*) {
  SP_StreamExecutor* const executor = params->stream_executor;
  *executor = {};
  executor->struct_size = SP_STREAMEXECUTOR_STRUCT_SIZE;
  executor->allocate = AllocateBlock;
  executor->deallocate = Deallocate;
  executor->host_memory_allocate = AllocateHost;
  executor->host_memory_deallocate = DeallocateHost;
  executor->get_allocator_stats = GetAllocatorStats;
  executor->device_memory_usage = GetMemoryUsage;
  executor->create_stream = CreateStream;
  executor->destroy_stream = DestroyStream;
  executor->create_stream_dependency = CreateStreamDependency;
  executor->get_stream_status = GetStreamStatus;
  executor->create_event = CreateEvent;
  executor->destroy_event = DestroyEvent;
  executor->get_event_status = GetEventStatus;
  executor->record_event = RecordEvent;
  executor->wait_for_event = WaitForEvent;
  executor->create_timer = CreateTimer;
  executor->destroy_timer = DestroyTimer;
  executor->start_timer = StartTimer;
  executor->stop_timer = StopTimer;
  executor->memcpy_dtoh = CopyToHost;
  executor->memcpy_htod = CopyFromHost;
  executor->memcpy_dtod = CopyOnDevice;
  executor->sync_memcpy_dtoh = CopyToHostNow;
  executor->sync_memcpy_htod = CopyFromHostNow;
  executor->sync_memcpy_dtod = CopyOnDeviceNow;
  executor->block_host_for_event = BlockHostForEvent;
  executor->block_host_until_done = BlockHostUntilDone;
  executor->synchronize_all_activity = SynchronizeAllActivity;
  executor->mem_zero = FillZeros;
  executor->memset = Fill;
  executor->memset32 = Fill32;
  executor->host_callback = HostCallback;
}

void DestroyStreamExecutor(const SP_Platform*, SP_StreamExecutor*) {}

void DestroyPlatform(SP_Platform*) {}

void DestroyPlatformFns(SP_PlatformFns*) {}

}  // namespace
}  // namespace emulated_gpu

extern "C" {

__attribute__((visibility("default"))) int64_t emulated_gpu_live_blocks() {
  emulated_gpu::SynchronizeAllActivity(nullptr, nullptr);
  return emulated_gpu::LiveBlocks();
}

__attribute__((visibility("default"))) void SE_InitPlugin(
    SE_PlatformRegistrationParams* params, TF_Status* status) {
  using emulated_gpu::ReadSetting;
  emulated_gpu::Settings& settings = emulated_gpu::settings;
  if (!ReadSetting("EMULATED_GPU_DEVICES", 16, &settings.devices, status) ||
      !ReadSetting("EMULATED_GPU_DELAY_US", 1000000, &settings.delay_us,
                   status) ||
      !ReadSetting("EMULATED_GPU_GUARD", 1, &settings.guard, status)) {
    return;
  }
  emulated_gpu::StartMemory(settings.guard != 0);

  SP_Platform* const platform = params->platform;
  platform->struct_size = SP_PLATFORM_STRUCT_SIZE;
  platform->name = "EMULATED_GPU";
  platform->type = "GPU";
  platform->supports_unified_memory = false;
  // A pool would hand out blocks that were released too early.
  platform->use_bfc_allocator = false;
  params->destroy_platform = emulated_gpu::DestroyPlatform;

  SP_PlatformFns* const functions = params->platform_fns;
  functions->get_device_count = emulated_gpu::GetDeviceCount;
  functions->create_device = emulated_gpu::CreateDevice;
  functions->destroy_device = emulated_gpu::DestroyDevice;
  functions->create_device_fns = emulated_gpu::CreateDeviceFns;
  functions->destroy_device_fns = emulated_gpu::DestroyDeviceFns;
  functions->create_stream_executor = emulated_gpu::CreateStreamExecutor;
  functions->destroy_stream_executor = emulated_gpu::DestroyStreamExecutor;
  functions->create_timer_fns = emulated_gpu::CreateTimerFns;
  functions->destroy_timer_fns = emulated_gpu::DestroyTimerFns;
  params->destroy_platform_fns = emulated_gpu::DestroyPlatformFns;
}

}  // extern "C"
