// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// GATHER_STITCH_HOST_DEVICE marks an inline function that host code and CUDA
// device code share. GATHER_STITCH_DEVICE marks one that runs on a device:
// where CUDA is compiled there alone, elsewhere on the host that stands in for
// one.

#ifndef GATHER_STITCH_CORE_HOST_DEVICE_H_
#define GATHER_STITCH_CORE_HOST_DEVICE_H_

#ifdef __CUDACC__
#define GATHER_STITCH_HOST_DEVICE __host__ __device__
#define GATHER_STITCH_DEVICE __device__
#else
#define GATHER_STITCH_HOST_DEVICE
#define GATHER_STITCH_DEVICE
#endif

#endif  // GATHER_STITCH_CORE_HOST_DEVICE_H_
