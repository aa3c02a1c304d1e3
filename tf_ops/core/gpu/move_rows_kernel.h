// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// The kernel of every op that only moves rows: for each of `rows` rows,
//
//   plan.At(row).to[0, row_bytes) = plan.At(row).from[0, row_bytes)
//
// where a null `from` stands for zeros, and a null `to` for nothing to do. A
// plan is a struct of numbers and device pointers that computes At from a row
// number; its Offset is the type of such numbers: uint32 where all counts are
// below 2^31, else uint64. Addresses have 64 bits in both.
//
// Threads move chunks, as wide as all rows are aligned to. Each asks for
// kChunksInFlight of them before it writes the first, which keeps some 100 KiB
// on the way for each multiprocessor.

#ifndef GATHER_STITCH_CORE_GPU_MOVE_ROWS_KERNEL_H_
#define GATHER_STITCH_CORE_GPU_MOVE_ROWS_KERNEL_H_

#include <cstdint>

#include "tf_ops/core/gpu/chunk.h"
#include "tf_ops/core/gpu/device.h"
#include "tf_ops/core/gpu/fast_divider.h"

namespace gather_stitch {
namespace gpu {

struct RowMove {
  const char* from;
  char* to;
};

inline constexpr int kChunksInFlight = 4;

// The threads that share a long row: those of a warp, which run in step, so
// that what they all read, such as the row's index, is read once.
inline constexpr int kRowThreads = 32;

template <typename Chunk>
GATHER_STITCH_DEVICE inline void MoveChunks(
    const RowMove (&moves)[kChunksInFlight],
    const uint64_t (&offsets)[kChunksInFlight]) {
  Chunk chunks[kChunksInFlight];
  GATHER_STITCH_UNROLL
  for (int j = 0; j < kChunksInFlight; ++j) {
    chunks[j] = moves[j].from == nullptr
                    ? Chunk{}
                    : Load<Chunk>(moves[j].from + offsets[j]);
  }
  GATHER_STITCH_UNROLL
  for (int j = 0; j < kChunksInFlight; ++j) {
    if (moves[j].to != nullptr) Store(moves[j].to + offsets[j], chunks[j]);
  }
}

// Rows of up to kRowThreads chunks. The chunks of all rows are numbered, and
// neighbours go to neighbouring threads: a warp moves several rows, and no
// thread is idle whatever their size.
template <typename Chunk, typename Plan>
struct MoveShortRows {
  using Offset = typename Plan::Offset;

  Plan plan;
  Offset chunks;  // of all rows
  FastDivider<Offset> chunks_per_row;

  GATHER_STITCH_DEVICE void operator()(const ThreadPosition& at) const {
    const uint64_t tile_chunks = uint64_t{at.threads} * kChunksInFlight;
    for (uint64_t tile = at.block * tile_chunks; tile < chunks;
         tile += at.blocks * tile_chunks) {
      RowMove moves[kChunksInFlight];
      uint64_t offsets[kChunksInFlight];
      GATHER_STITCH_UNROLL
      for (int j = 0; j < kChunksInFlight; ++j) {
        const uint64_t chunk = tile + j * at.threads + at.thread;
        moves[j] = {nullptr, nullptr};
        offsets[j] = 0;
        if (chunk >= chunks) continue;
        const Offset row = chunks_per_row.Divide(static_cast<Offset>(chunk));
        moves[j] = plan.At(row);
        offsets[j] = (chunk - row * chunks_per_row.divisor()) * sizeof(Chunk);
      }
      MoveChunks<Chunk>(moves, offsets);
    }
  }
};

// Longer rows, in parts of kRowThreads * kChunksInFlight chunks for a warp.
template <typename Chunk, typename Plan>
struct MoveLongRows {
  using Offset = typename Plan::Offset;
  static constexpr int kPartChunks = kRowThreads * kChunksInFlight;

  Plan plan;
  Offset parts;  // of all rows
  FastDivider<Offset> parts_per_row;
  uint64_t chunks_per_row;

  GATHER_STITCH_DEVICE void operator()(const ThreadPosition& at) const {
    for (uint64_t i = at.First(); i < uint64_t{parts} * kRowThreads;
         i += at.Stride()) {
      const Offset part = static_cast<Offset>(i / kRowThreads);
      const Offset row = parts_per_row.Divide(part);
      const uint64_t part_of_row = part - row * parts_per_row.divisor();
      const uint64_t first = part_of_row * kPartChunks + i % kRowThreads;
      const RowMove move = plan.At(row);
      RowMove moves[kChunksInFlight];
      uint64_t offsets[kChunksInFlight];
      GATHER_STITCH_UNROLL
      for (int j = 0; j < kChunksInFlight; ++j) {
        const uint64_t chunk = first + j * kRowThreads;
        const bool is_inside = chunk < chunks_per_row;
        moves[j] = is_inside ? move : RowMove{nullptr, nullptr};
        offsets[j] = is_inside ? chunk * sizeof(Chunk) : 0;
      }
      MoveChunks<Chunk>(moves, offsets);
    }
  }
};

// Whether uint32 can count the threads' items for rows of `row_bytes` bytes.
inline bool FitsUint32(int64_t rows, int64_t row_bytes) {
  // A chunk is a byte at least.
  return rows <= INT32_MAX / (row_bytes + kRowThreads * kChunksInFlight);
}

// `rows` and `row_bytes` > 0; `alignment` is an OR of the addresses of all
// tables of rows that the plan knows.
template <typename Plan>
GpuStatus MoveRows(const Plan& plan, int64_t rows, int64_t row_bytes,
                   uint64_t alignment, GpuStream stream) {
  using Offset = typename Plan::Offset;
  const int chunk_bytes =
      CommonAlignment(alignment | static_cast<uint64_t>(row_bytes));
  return VisitChunk(chunk_bytes, [&](auto chunk) {
    using Chunk = decltype(chunk);
    const int64_t chunks_per_row = row_bytes / chunk_bytes;
    if (chunks_per_row <= kRowThreads) {
      const int64_t chunks = rows * chunks_per_row;
      return Launch(
          ShapeFor(chunks / kChunksInFlight + 1),
          MoveShortRows<Chunk, Plan>{
              plan, static_cast<Offset>(chunks),
              FastDivider<Offset>(static_cast<Offset>(chunks_per_row))},
          stream);
    }
    using Long = MoveLongRows<Chunk, Plan>;
    const int64_t parts_per_row =
        (chunks_per_row + Long::kPartChunks - 1) / Long::kPartChunks;
    const int64_t parts = rows * parts_per_row;
    return Launch(ShapeFor(parts * kRowThreads),
                  Long{plan, static_cast<Offset>(parts),
                       FastDivider<Offset>(static_cast<Offset>(parts_per_row)),
                       static_cast<uint64_t>(chunks_per_row)},
                  stream);
  });
}

// An OR of addresses for MoveRows.
inline uint64_t AddressBits(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer);
}

}  // namespace gpu
}  // namespace gather_stitch

#endif  // GATHER_STITCH_CORE_GPU_MOVE_ROWS_KERNEL_H_
