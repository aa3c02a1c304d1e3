// Copyright The gather_stitch Authors.
// SPDX-License-Identifier: Apache-2.0

// Serves a model that examples/mixture_of_experts.py --save wrote, without
// Python:
//
//   serve MODEL [--accelerate] < pictures
//
// A line of 64 numbers between 0 and 1, a picture of 8x8 points, is answered by
// a line with the digit that it shows and how sure the model is. --accelerate
// is for a model of stock ops: their kernels are replaced by those of
// gather_stitch.

#include <cstdio>
#include <cstring>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "tensorflow/cc/saved_model/loader.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/public/session.h"
#include "tf_ops/cc/loader.h"

namespace tf = tensorflow;

namespace {

constexpr int kPoints = 64;

// The names by which a session knows what the signature calls otherwise.
struct Names {
  std::string pictures;
  std::string digits;
  std::string probabilities;
};

absl::Status Load(const std::string& folder, bool accelerate,
                  tf::SavedModelBundle* model, Names* names) {
  absl::Status status = accelerate ? gather_stitch::LoadStockKernels()
                                   : gather_stitch::LoadLibrary();
  if (!status.ok()) return status;
  status = tf::LoadSavedModel(tf::SessionOptions(), tf::RunOptions(), folder,
                              {"serve"}, model);
  if (!status.ok()) return status;
  const auto& signatures = model->GetSignatures();
  const auto found = signatures.find("serving_default");
  if (found == signatures.end() || !found->second.inputs().count("pictures") ||
      !found->second.outputs().count("digits") ||
      !found->second.outputs().count("probabilities")) {
    return absl::InvalidArgumentError(
        folder + " is not a model that mixture_of_experts.py saved");
  }
  const tf::SignatureDef& signature = found->second;
  names->pictures = signature.inputs().at("pictures").name();
  names->digits = signature.outputs().at("digits").name();
  names->probabilities = signature.outputs().at("probabilities").name();
  return absl::OkStatus();
}

// False where `line` is not 64 numbers.
bool ReadPicture(const std::string& line, tf::Tensor* picture) {
  std::istringstream words(line);
  auto points = picture->flat<float>();
  for (int i = 0; i < kPoints; ++i) {
    if (!(words >> points(i))) return false;
  }
  std::string rest;
  return !(words >> rest);
}

int Serve(const tf::SavedModelBundle& model, const Names& names) {
  int status_of_exit = 0;
  std::string line;
  for (int number = 1; std::getline(std::cin, line); ++number) {
    tf::Tensor picture(tf::DT_FLOAT, tf::TensorShape({1, kPoints}));
    std::vector<tf::Tensor> outputs;
    const absl::Status status =
        ReadPicture(line, &picture)
            ? model.GetSession()->Run({{names.pictures, picture}},
                                      {names.digits, names.probabilities}, {},
                                      &outputs)
            : absl::InvalidArgumentError("is not 64 numbers");
    if (!status.ok()) {
      std::cerr << "line " << number << ": " << status.message() << std::endl;
      status_of_exit = 1;
      continue;
    }
    const int digit = outputs[0].vec<int32_t>()(0);
    std::printf("%d %.9g\n", digit, outputs[1].matrix<float>()(0, digit));
    std::fflush(stdout);  // Whoever asked may wait for it.
  }
  return status_of_exit;
}

}  // namespace

int main(int argc, char** argv) {
  const bool accelerate =
      argc == 3 && std::strcmp(argv[2], "--accelerate") == 0;
  if (argc != 2 && !accelerate) {
    std::cerr << "usage: " << argv[0] << " MODEL [--accelerate] < pictures\n";
    return 2;
  }
  tf::SavedModelBundle model;
  Names names;
  const absl::Status status = Load(argv[1], accelerate, &model, &names);
  if (!status.ok()) {
    std::cerr << status << std::endl;
    return 1;
  }
  return Serve(model, names);
}
