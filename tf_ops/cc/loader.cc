// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

#include "tf_ops/cc/loader.h"

#include <dlfcn.h>

#include <filesystem>
#include <mutex>
#include <string>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tensorflow/c/c_api.h"
#include "tensorflow/core/framework/op.h"

namespace gather_stitch {
namespace {

const char* const kOpNames[] = {
    "GatherStitch>GatherV2",
    "GatherStitch>GatherV2Grad",
    "GatherStitch>GatherV2SparseGrad",
    "GatherStitch>ResourceGather",
    "GatherStitch>ParallelDynamicStitch",
    "GatherStitch>ParallelDynamicStitchV2",
    "GatherStitch>ParallelDynamicStitchGrad",
};

// Held while a library is loaded, so that none is loaded twice.
std::mutex& LoadMutex() {
  static std::mutex mutex;
  return mutex;
}

bool IsFile(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

absl::Status LoadFile(const std::string& path) {
  // It stays for good: TensorFlow keeps pointers into it.
  if (dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) != nullptr) {
    return absl::OkStatus();
  }
  const char* why = dlerror();
  return absl::FailedPreconditionError(
      absl::StrCat(path, " does not load into TensorFlow ", TF_Version(), ": ",
                   why == nullptr ? "no reason given" : why,
                   "\n  to mend: install the tf-gather-stitch that was built "
                   "for this TensorFlow"));
}

absl::Status NoFile(const std::string& file, const std::string& folder) {
  return absl::NotFoundError(
      absl::StrCat("there is no ", file, " in ", folder));
}

// How many of the ops TensorFlow knows; `missing` are the others.
int CountRegistered(std::vector<std::string>* missing) {
  missing->clear();
  int registered = 0;
  for (const char* name : kOpNames) {
    if (tensorflow::OpRegistry::Global()->LookUp(name) != nullptr) {
      ++registered;
    } else {
      missing->push_back(name);
    }
  }
  return registered;
}

absl::Status LoadOps(const std::string& folder) {
  std::vector<std::string> missing;
  if (CountRegistered(&missing) == 0) {
    const std::string path = absl::StrCat(folder, "/_ops.so");
    if (!IsFile(path)) {
      return absl::NotFoundError(absl::StrCat(
          NoFile("_ops.so", folder).message(),
          "\n  to mend: keep it beside _cc_ops.so, as tf-gather-stitch "
          "installs "
          "it, or call gather_stitch::LoadLibrary with its folder"));
    }
    const absl::Status status = LoadFile(path);
    if (!status.ok()) return status;
    CountRegistered(&missing);
  }
  if (missing.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("this process has loaded the op library of another version, "
                   "which lacks ",
                   absl::StrJoin(missing, ", ")));
}

}  // namespace

std::string LibraryFolder() {
  Dl_info info;
  if (dladdr(reinterpret_cast<const void*>(&LibraryFolder), &info) == 0 ||
      info.dli_fname == nullptr) {
    return ".";
  }
  const std::string path = info.dli_fname;
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

absl::Status LoadLibrary() { return LoadLibrary(LibraryFolder()); }

absl::Status LoadLibrary(const std::string& folder) {
  const std::lock_guard<std::mutex> lock(LoadMutex());
  return LoadOps(folder);
}

absl::Status LoadStockKernels() { return LoadStockKernels(LibraryFolder()); }

absl::Status LoadStockKernels(const std::string& folder) {
  const std::lock_guard<std::mutex> lock(LoadMutex());
  const absl::Status status = LoadOps(folder);
  if (!status.ok()) return status;
  // A second copy would register every kernel twice, which breaks every call.
  static bool is_loaded = false;
  if (is_loaded) return absl::OkStatus();
  const std::string path = absl::StrCat(folder, "/_stock_kernels.so");
  if (!IsFile(path)) {
    return absl::NotFoundError(
        absl::StrCat(NoFile("_stock_kernels.so", folder).message(),
                     ": this installation can not accelerate stock models"));
  }
  const absl::Status loaded = LoadFile(path);
  is_loaded = loaded.ok();
  return loaded;
}

}  // namespace gather_stitch
