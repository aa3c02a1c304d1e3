// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// Loading the op libraries into a C++ program.

#ifndef GATHER_STITCH_CC_LOADER_H_
#define GATHER_STITCH_CC_LOADER_H_

#include <string>

#include "absl/status/status.h"

namespace gather_stitch {

/// The folder of the library that this function is in: the Python package, or
/// wherever its libraries were copied to.
std::string LibraryFolder();

/// Loads the ops and their kernels, once in a process: `_ops.so` in `folder`,
/// by default in LibraryFolder(). A program that loads a SavedModel calls it
/// first; the classes of gather_stitch::ops call it themselves.
///
/// ```
///     absl::Status status = gather_stitch::LoadLibrary();
///     tensorflow::SavedModelBundle model;
///     status.Update(tensorflow::LoadSavedModel(
///         {}, {}, "model", {tensorflow::kSavedModelTagServe}, &model));
/// ```
///
/// Where the ops are registered already, such as by Python in the same process,
/// it does nothing: a second copy would break every call.
///
/// Returns NotFound where there is no such file, FailedPrecondition where it
/// does not load, such as into another version of TensorFlow, or where the
/// process has loaded an older version that lacks some of the ops. A failure
/// may be mended and tried again.
absl::Status LoadLibrary();
absl::Status LoadLibrary(const std::string& folder);

/// Makes stock models faster: loads `_stock_kernels.so` in `folder`, whose
/// kernels take the place of TensorFlow's own ones for gathers and stitches.
/// Sessions that are made later use them; there is no way back. Loads the ops
/// as well.
///
/// Returns what LoadLibrary returns, NotFound where the library of stock
/// kernels is not part of the installation.
absl::Status LoadStockKernels();
absl::Status LoadStockKernels(const std::string& folder);

}  // namespace gather_stitch

#endif  // GATHER_STITCH_CC_LOADER_H_
