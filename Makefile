# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
#
# The one build recipe: setup.py, CI and people all come through here.
#
# The targets that `make help` lists set up what they need in .venv and then
# call this file again for `package` or `core_tests`, which only compile, in
# parallel, with the interpreter TF_PYTHON. Everything made lies under build/
# but for the libraries that the last step copies into python/gather_stitch.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SUFFIXES:
MAKEFLAGS += --no-builtin-rules

# PYTHON and TENSORFLOW count where .venv is made; one that is given later makes
# it anew. Empty means: what .venv has, else python3 and tensorflow~=2.21.0.
PYTHON ?=
TENSORFLOW ?=
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
V ?= 0

CXX ?= g++
BUILD ?= build/opt
TF_PYTHON ?= .venv/bin/python
# The XLA kernels: 1 or 0; where nothing is said, whether TensorFlow has what they need.
WITH_XLA ?=
# The GPU kernels: 1 or 0; where nothing is said, whether nvcc is found: below
# CUDA_HOME, else in PATH or where CUDA installs it. They are compiled for
# CUDA_ARCHS, compute capabilities without the dot, and as PTX for the last.
WITH_CUDA ?=
CUDA_HOME ?=
CUDA_ARCHS ?= 80 90
# Replaced by the sanitizer targets: of what includes no TensorFlow, and of what does.
OPTIMIZE ?= -O3 -DNDEBUG
PLUGIN_OPTIMIZE ?= -O2 -DNDEBUG
# Of the tests in Python: --seed=N repeats a run.
PYTEST_FLAGS ?=
# A header below $(BUILD) that sources with TensorFlow include first, compiled once.
PRECOMPILED ?=

compile_goals := package emulated_gpu cuda_objects gpu_check core_tests cc_tests \
  benchmark_library core_benchmark counted_jobs
ifeq ($(filter $(compile_goals),$(MAKECMDGOALS)),)
.NOTPARALLEL:
endif

quiet := $(if $(filter 0,$(V)),@,)
# $(call say,WHAT,FILE)
say = $(if $(filter 0,$(V)),@printf '  %-8s %s\n' '$(1)' '$(2)')
# $(call on_each_cpu,COMMAND): once for each instruction set that the core has code for.
on_each_cpu = for features in baseline avx2; do \
  GATHER_STITCH_CPU_FEATURES=$$features $(1) || exit; done
# A jobserver is there when the caller gave -j; then its number counts.
jobs = $(if $(findstring jobserver,$(MAKEFLAGS)),,-j$(JOBS))
submake = +@$(MAKE) --no-print-directory $(jobs)
# $(call write_if_changed,TEXT): writes the target, or leaves it as old as it is.
define write_if_changed
	@mkdir -p $(@D)
	@printf '%s\n' '$(1)' | cmp -s - $@ || printf '%s\n' '$(1)' > $@
endef

# ---- Sources: by rule, the same as in BUILD ---------------------------------

core_sources := $(filter-out %_test.cc %.cu.cc,$(wildcard tf_ops/core/*.cc))
plugin_sources := $(filter-out %_test.cc %.cu.cc,\
  $(wildcard tf_ops/ops/*.cc tf_ops/kernels/*.cc))
stock_sources := $(filter-out %_test.cc,$(wildcard tf_ops/stock/*.cc))
cc_sources := $(wildcard tf_ops/cc/*.cc)
cc_headers := $(filter-out %/op_adder.h,$(wildcard tf_ops/cc/*.h))
xla_sources := $(filter-out %_test.cc,$(wildcard tf_ops/xla/*.cc))
gpu_sources := $(wildcard tf_ops/gpu/*.cc)
gpu_core_sources := $(wildcard tf_ops/core/gpu/*.cu.cc)
core_test_sources := $(filter-out %.cu.cc,$(wildcard tests/core/*.cc))

core_objects := $(core_sources:%.cc=$(BUILD)/%.o)
plugin_objects := $(plugin_sources:%.cc=$(BUILD)/%.o)
# What the kernels under stock names share with ours: all but what registers.
stock_objects := $(stock_sources:%.cc=$(BUILD)/%.o) \
  $(filter-out %_kernels.o %_ops.o,$(plugin_objects))
cc_objects := $(cc_sources:%.cc=$(BUILD)/%.o)
cc_test_objects := $(patsubst %.cc,$(BUILD)/%.o,$(wildcard tests/cc/*.cc)) \
  $(BUILD)/tests/core/test_main.o $(BUILD)/tf_ops/core/cpu_features.o
xla_objects := $(xla_sources:%.cc=$(BUILD)/%.o)
# The host twin of the GPU kernels: the same files, compiled as plain C++.
gpu_twin_objects := $(gpu_core_sources:%.cu.cc=$(BUILD)/%.twin.o)
cuda_objects := $(gpu_core_sources:%.cu.cc=$(BUILD)/%.cuda.o)
# What the GPU kernels share with those of the CPU: all but what registers.
gpu_objects := $(gpu_sources:%.cc=$(BUILD)/%.o) \
  $(filter-out %_kernels.o %_ops.o,$(plugin_objects))
# Its test build, with the host in place of CUDA.
emulated_gpu_objects := $(filter-out %/cuda_stream.o,$(gpu_objects)) $(gpu_twin_objects) \
  $(BUILD)/tests/emulated_gpu/emulated_stream.o
# What is not of the GPU comes from another build, where only the rest has a sanitizer.
EMULATED_GPU_SHARED ?= $(BUILD)
emulated_gpu_objects := $(patsubst $(BUILD)/tf_ops/ops/%,$(EMULATED_GPU_SHARED)/tf_ops/ops/%,\
  $(emulated_gpu_objects:$(BUILD)/tf_ops/kernels/%=$(EMULATED_GPU_SHARED)/tf_ops/kernels/%))
core_test_objects := $(core_test_sources:%.cc=$(BUILD)/%.o) $(gpu_twin_objects)
benchmark_objects := $(patsubst %.cc,$(BUILD)/%.o,\
  $(filter-out %.cu.cc,$(wildcard benchmarks/core/*.cc)))

# ---- Compiling --------------------------------------------------------------

nvcc := $(firstword $(if $(CUDA_HOME),$(wildcard $(CUDA_HOME)/bin/nvcc),\
  $(shell command -v nvcc) $(wildcard /usr/local/cuda/bin/nvcc)))
# Where nvcc itself looks: what is in PATH may be a link or a wrapper.
cuda_home = $(if $(CUDA_HOME),$(CUDA_HOME),\
  $(shell '$(nvcc)' --dryrun -x cu /dev/null 2>&1 | sed -n 's/^\#$$ TOP=//p'))
nvcc_flags = -std=c++17 -O3 -DNDEBUG -I. -MMD -MP -MF $(@:.o=.d) -ccbin '$(CXX)' \
  -Werror all-warnings -Xcompiler -fPIC,-fvisibility=hidden,-Wall \
  $(foreach arch,$(CUDA_ARCHS),-gencode arch=compute_$(arch),code=sm_$(arch)) \
  -gencode arch=compute_$(lastword $(CUDA_ARCHS)),code=compute_$(lastword $(CUDA_ARCHS)) \
  $(NVCCFLAGS)
# Its own copy of the runtime, hidden, before TensorFlow, which may export stubs of it.
cudart_flags = $(addprefix -L,$(wildcard $(cuda_home)/lib64 $(cuda_home)/lib)) \
  -lcudart_static -ldl -lrt -lpthread -Wl,--exclude-libs,ALL

common_flags := -std=c++17 -fPIC -pthread -Wall -Wextra -Werror -I. -MMD -MP
# Sums must have the same bits on every machine, so products are never fused
# into them. The core is hidden; the files that include TensorFlow are not,
# since its type identities are addresses of statics in inline functions, which
# must stay one across the libraries of a process. Its loops start where they
# would in any library: with the linker's offsets, the same code took 160 us in
# one library and up to 190 in another while the neighbour of the core was busy.
core_flags := $(common_flags) $(OPTIMIZE) -ffp-contract=off -fvisibility=hidden \
  -falign-functions=64 -falign-loops=32
core_test_flags := $(common_flags) $(OPTIMIZE) -UNDEBUG
plugin_flags := $(common_flags) $(PLUGIN_OPTIMIZE) $(PRECOMPILED:%=-Winvalid-pch -include %)
# They run while XLA compiles, which takes thousands of times as long.
xla_flags := $(common_flags) -O1 -DNDEBUG

.PHONY: FORCE package core_tests cc_tests
FORCE:

$(BUILD)/compiler: FORCE
	$(call write_if_changed,$(shell $(CXX) --version | head -n 1) $(CXXFLAGS) $(LDFLAGS))

# What finds the C++ client, for CMake and pkg-config.
cc_configs := $(addprefix $(BUILD)/package/,cmake/GatherStitchConfig.cmake \
  cmake/GatherStitchConfigVersion.cmake pkgconfig/gather_stitch.pc)

# Written anew when another TensorFlow is found, which rebuilds what includes it.
$(BUILD)/tensorflow.cflags $(BUILD)/tensorflow.ldflags $(BUILD)/build_info.cflags \
$(BUILD)/xla.cflags $(BUILD)/xla.ldflags $(BUILD)/package/_build_info.py $(cc_configs) &: \
    $(BUILD)/compiler FORCE
	@'$(TF_PYTHON)' tools/tensorflow_flags.py --out=$(BUILD) --compiler='$(CXX)'

$(BUILD)/tf_ops/core/%.o: tf_ops/core/%.cc Makefile $(BUILD)/compiler
	@mkdir -p $(@D)
	$(call say,CXX,$<)
	$(quiet)$(CXX) $(core_flags) $(CXXFLAGS) -c $< -o $@

$(BUILD)/%.twin.o: %.cu.cc Makefile $(BUILD)/compiler
	@mkdir -p $(@D)
	$(call say,CXX,$<)
	$(quiet)$(CXX) $(core_test_flags) $(CXXFLAGS) -x c++ -c $< -o $@

$(BUILD)/tests/core/%.o: tests/core/%.cc Makefile $(BUILD)/compiler
	@mkdir -p $(@D)
	$(call say,CXX,$<)
	$(quiet)$(CXX) $(core_test_flags) $(CXXFLAGS) -c $< -o $@

$(BUILD)/tf_ops/ops/build_info.o: $(BUILD)/build_info.cflags
$(BUILD)/tf_ops/ops/build_info.o: private plugin_flags += @$(BUILD)/build_info.cflags

$(cc_objects) $(cc_test_objects): $(PRECOMPILED:=.gch)
$(BUILD)/%.h.gch: %.h Makefile $(BUILD)/compiler $(BUILD)/tensorflow.cflags
	@mkdir -p $(@D)
	$(call say,CXX,$<)
	$(quiet)$(CXX) $(common_flags) $(PLUGIN_OPTIMIZE) @$(BUILD)/tensorflow.cflags $(CXXFLAGS) \
	  -MF $@.d -x c++-header $< -o $@

$(BUILD)/tf_ops/gpu/build_info.o: private plugin_flags += \
  '-DGATHER_STITCH_CUDA_ARCHITECTURES="$(strip $(CUDA_ARCHS))"'
$(BUILD)/tf_ops/gpu/build_info.o: $(BUILD)/cuda

$(BUILD)/tests/emulated_gpu/%.o: tests/emulated_gpu/%.cc Makefile $(BUILD)/compiler \
                                 $(BUILD)/tensorflow.cflags
	@mkdir -p $(@D)
	$(call say,CXX,$<)
	$(quiet)$(CXX) $(plugin_flags) @$(BUILD)/tensorflow.cflags $(CXXFLAGS) -c $< -o $@

$(BUILD)/cuda: FORCE
	$(call write_if_changed,$(nvcc) $(CUDA_ARCHS))

$(BUILD)/%.cuda.o: %.cu.cc Makefile $(BUILD)/compiler $(BUILD)/cuda
	@mkdir -p $(@D)
	$(call say,NVCC,$<)
	$(quiet)$(nvcc) $(nvcc_flags) -Xptxas -v -c -x cu $< -o $@ 2> $(@:.o=.ptxas) || \
	  { cat $(@:.o=.ptxas) >&2; exit 1; }

$(BUILD)/tests/cc/%.o: tests/cc/%.cc Makefile $(BUILD)/compiler $(BUILD)/tensorflow.cflags
	@mkdir -p $(@D)
	$(call say,CXX,$<)
	$(quiet)$(CXX) $(plugin_flags) @$(BUILD)/tensorflow.cflags $(CXXFLAGS) -c $< -o $@

$(BUILD)/tf_ops/%.o: tf_ops/%.cc Makefile $(BUILD)/compiler $(BUILD)/tensorflow.cflags
	@mkdir -p $(@D)
	$(call say,CXX,$<)
	$(quiet)$(CXX) $(plugin_flags) @$(BUILD)/tensorflow.cflags $(CXXFLAGS) -c $< -o $@

$(BUILD)/tf_ops/xla/%.o: tf_ops/xla/%.cc Makefile $(BUILD)/compiler $(BUILD)/tensorflow.cflags \
                         $(BUILD)/xla.cflags
	@mkdir -p $(@D)
	$(call say,CXX,$<)
	$(quiet)$(CXX) $(xla_flags) @$(BUILD)/tensorflow.cflags @$(BUILD)/xla.cflags $(CXXFLAGS) \
	  -c $< -o $@

# The lists of objects are files, so that a deleted source relinks as well.
$(BUILD)/ops.objects: FORCE
	$(call write_if_changed,$(plugin_objects) $(core_objects))

$(BUILD)/stock_kernels.objects: FORCE
	$(call write_if_changed,$(stock_objects) $(core_objects))

$(BUILD)/cc_ops.objects: FORCE
	$(call write_if_changed,$(cc_objects))

$(BUILD)/gpu_kernels.objects: FORCE
	$(call write_if_changed,$(gpu_objects) $(cuda_objects))

$(BUILD)/emulated_gpu_kernels.objects: FORCE
	$(call write_if_changed,$(emulated_gpu_objects))

$(BUILD)/xla.objects: FORCE
	$(call write_if_changed,$(xla_objects))

$(BUILD)/core.objects: FORCE
	$(call write_if_changed,$(core_objects))

$(BUILD)/core_tests.objects: FORCE
	$(call write_if_changed,$(core_test_objects) $(core_objects))

$(BUILD)/package/_ops.so: $(plugin_objects)
$(BUILD)/package/_stock_kernels.so: $(stock_objects)
$(BUILD)/package/_%.so: $(core_objects) $(BUILD)/%.objects $(BUILD)/tensorflow.ldflags
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(quiet)$(CXX) -shared -pthread @$(BUILD)/$*.objects $(CXXFLAGS) $(LDFLAGS) \
	  -Wl,--no-undefined @$(BUILD)/tensorflow.ldflags -o $@

# A program that needs no more of TensorFlow than this library does leaves it to the
# library to find it: beside the Python package, or in its own folder.
$(BUILD)/package/_cc_ops.so: $(cc_objects) $(BUILD)/cc_ops.objects $(BUILD)/tensorflow.ldflags
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(quiet)$(CXX) -shared -pthread @$(BUILD)/cc_ops.objects $(CXXFLAGS) $(LDFLAGS) \
	  -Wl,--no-undefined -Wl,-soname,$(@F) -Wl,-rpath,'$$ORIGIN/../tensorflow:$$ORIGIN' \
	  @$(BUILD)/tensorflow.ldflags -l:libtensorflow_cc.so.2 -ldl -o $@

# The tests with the client in them, and with it in a library of $(PACKAGE_LIBS),
# which says how to link that.
$(BUILD)/cc_tests: $(cc_test_objects) $(cc_objects) $(BUILD)/tensorflow.ldflags
	$(call say,LINK,$@)
	$(quiet)$(CXX) -pthread $(PLUGIN_OPTIMIZE) $(cc_test_objects) $(cc_objects) $(CXXFLAGS) \
	  $(LDFLAGS) @$(BUILD)/tensorflow.ldflags -l:libtensorflow_cc.so.2 -ldl \
	  "$$(sed -n 's/^-L/-Wl,-rpath,/p' $(BUILD)/tensorflow.ldflags)" -o $@

$(BUILD)/cc_package_tests: $(cc_test_objects) FORCE
	$(call say,LINK,$@)
	$(quiet)$(CXX) -pthread $(PLUGIN_OPTIMIZE) $(cc_test_objects) $(CXXFLAGS) $(LDFLAGS) \
	  $(PACKAGE_LIBS) -o $@

$(BUILD)/package/include/%: %
	@mkdir -p $(@D)
	$(quiet)cp $< $@

$(BUILD)/package/_gpu_kernels.so: $(gpu_objects) $(cuda_objects) $(BUILD)/core.a \
                                  $(BUILD)/gpu_kernels.objects $(BUILD)/tensorflow.ldflags
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(quiet)$(CXX) -shared -pthread @$(BUILD)/gpu_kernels.objects $(BUILD)/core.a $(CXXFLAGS) \
	  $(LDFLAGS) -Wl,--no-undefined $(cudart_flags) @$(BUILD)/tensorflow.ldflags -o $@

# An archive, of which a library takes the parts that it uses.
$(BUILD)/core.a: $(core_objects) $(BUILD)/core.objects
	@rm -f $@
	$(quiet)$(AR) rcs $@ @$(BUILD)/core.objects

$(BUILD)/package/_xla_kernels.so: $(xla_objects) $(BUILD)/core.a $(BUILD)/xla.objects \
                                  $(BUILD)/tensorflow.ldflags $(BUILD)/xla.ldflags
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(quiet)$(CXX) -shared -pthread @$(BUILD)/xla.objects $(BUILD)/core.a $(CXXFLAGS) $(LDFLAGS) \
	  -Wl,--no-undefined @$(BUILD)/tensorflow.ldflags @$(BUILD)/xla.ldflags -o $@

$(BUILD)/core_tests: $(core_test_objects) $(core_objects) $(BUILD)/core_tests.objects
	$(call say,LINK,$@)
	$(quiet)$(CXX) -pthread $(OPTIMIZE) @$(BUILD)/core_tests.objects $(CXXFLAGS) $(LDFLAGS) -o $@

ifneq ($(filter package,$(MAKECMDGOALS)),)
ifeq ($(WITH_XLA),)
WITH_XLA := $(shell '$(TF_PYTHON)' tools/tensorflow_flags.py --has-xla)
endif
# What another build left would be packaged as if it were of this one.
ifneq ($(WITH_XLA),1)
$(info $(shell rm -f $(BUILD)/package/_xla_kernels.so)  NOTE     without the XLA kernels)
endif
endif

# The same of the GPU kernels; the compiler that is asked for has to be there.
ifneq ($(filter package cuda_objects gpu_check,$(MAKECMDGOALS)),)
ifeq ($(WITH_CUDA),)
WITH_CUDA := $(if $(nvcc),1,0)
endif
ifeq ($(WITH_CUDA)$(nvcc),1)
$(error WITH_CUDA=1, and there is no nvcc in $(if $(CUDA_HOME),$(CUDA_HOME)/bin,PATH))
endif
ifneq ($(WITH_CUDA),1)
$(info $(shell rm -f $(BUILD)/package/_gpu_kernels.so)  NOTE     without the GPU kernels\
  $(if $(nvcc),,: there is no nvcc))
endif
endif

.PHONY: cuda_objects gpu_check
# The tests of the core and a benchmark, on a GPU: without what stands in for one.
device_test_objects := $(filter-out %/test_device.o %/gpu_kernels_test.o %.twin.o,\
  $(core_test_objects)) $(BUILD)/tests/core/test_device.cuda.o
$(BUILD)/device_tests: $(device_test_objects)
$(BUILD)/gpu_benchmark: $(BUILD)/benchmarks/core/gpu_benchmark.cuda.o
$(BUILD)/device_tests $(BUILD)/gpu_benchmark: $(cuda_objects) $(BUILD)/core.a
	$(call say,LINK,$@)
	$(quiet)$(CXX) -pthread $(filter %.o,$^) $(BUILD)/core.a $(CXXFLAGS) $(LDFLAGS) \
	  $(cudart_flags) -o $@

gpu_check: $(BUILD)/core_tests $(BUILD)/device_tests $(BUILD)/gpu_benchmark
cuda_objects: $(cuda_objects)

package: $(BUILD)/package/_ops.so $(BUILD)/package/_stock_kernels.so \
  $(if $(filter 1,$(WITH_XLA)),$(BUILD)/package/_xla_kernels.so) \
  $(if $(filter 1,$(WITH_CUDA)),$(BUILD)/package/_gpu_kernels.so) \
  $(BUILD)/package/_cc_ops.so $(BUILD)/package/_build_info.py $(cc_configs) \
  $(cc_headers:%=$(BUILD)/package/include/%)
core_tests: $(BUILD)/core_tests
cc_tests: $(BUILD)/cc_tests $(BUILD)/cc_package_tests

# ---- The emulated GPU -------------------------------------------------------

.PHONY: emulated_gpu
emulated_device_objects := $(addprefix $(BUILD)/tests/emulated_gpu/,device.o device_memory.o stream.o)

# It includes TensorFlow's C interface only, and so is compiled as the core is.
$(emulated_device_objects): private plugin_flags = $(core_flags)

$(BUILD)/emulated_gpu/device.so: $(emulated_device_objects)
$(BUILD)/emulated_gpu/planted_gather.so: $(BUILD)/tests/emulated_gpu/planted_gather.o
$(BUILD)/emulated_gpu/_gpu_kernels.so: $(emulated_gpu_objects) \
  $(BUILD)/emulated_gpu_kernels.objects $(EMULATED_GPU_SHARED)/core.a
$(BUILD)/emulated_gpu/%.so: $(BUILD)/tensorflow.ldflags
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(quiet)$(CXX) -shared -pthread $(filter %.o %.a,$^) $(CXXFLAGS) $(LDFLAGS) \
	  -Wl,--no-undefined @$(BUILD)/tensorflow.ldflags -o $@

emulated_gpu: $(addprefix $(BUILD)/emulated_gpu/,device.so planted_gather.so _gpu_kernels.so)

# ---- Benchmarks -------------------------------------------------------------

.PHONY: benchmark_library core_benchmark counted_jobs

$(BUILD)/benchmarks/core/%.o: benchmarks/core/%.cc Makefile $(BUILD)/compiler
	@mkdir -p $(@D)
	$(call say,CXX,$<)
	$(quiet)$(CXX) $(common_flags) $(OPTIMIZE) $(CXXFLAGS) -c $< -o $@

$(BUILD)/benchmarks/machine.so: benchmarks/harness/machine.cc Makefile $(BUILD)/compiler
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(quiet)$(CXX) $(common_flags) $(OPTIMIZE) -fopenmp $(CXXFLAGS) $(LDFLAGS) -shared $< -o $@

$(BUILD)/benchmarks/core_benchmark: private libraries := -lbenchmark
$(BUILD)/benchmarks/core_benchmark $(BUILD)/benchmarks/counted_jobs: \
    $(BUILD)/benchmarks/%: $(BUILD)/benchmarks/core/%.o $(BUILD)/benchmarks/core/jobs.o \
                           $(core_objects) $(BUILD)/ops.objects
	$(call say,LINK,$@)
	$(quiet)$(CXX) -pthread $(OPTIMIZE) $(filter %.o,$^) $(CXXFLAGS) $(LDFLAGS) $(libraries) -o $@

benchmark_library: $(BUILD)/benchmarks/machine.so
core_benchmark: $(BUILD)/benchmarks/core_benchmark
counted_jobs: $(BUILD)/benchmarks/counted_jobs

-include $(patsubst %.o,%.d,$(plugin_objects) $(gpu_objects) $(emulated_gpu_objects) \
  $(cuda_objects) $(stock_objects) $(xla_objects) $(core_objects) \
  $(core_test_objects) $(device_test_objects) $(BUILD)/benchmarks/core/gpu_benchmark.cuda.o \
  $(cc_objects) $(cc_test_objects) $(benchmark_objects) \
  $(emulated_device_objects) $(BUILD)/tests/emulated_gpu/planted_gather.o) \
  $(PRECOMPILED:=.gch.d) $(BUILD)/benchmarks/machine.d

# ---- Set-up -----------------------------------------------------------------

.PHONY: tools venv libraries

tools:
	@tools/setup.sh tools '$(CXX)'

venv:
	@tools/setup.sh venv '$(PYTHON)' '$(TENSORFLOW)' '$(CXX)'

# $(call extra,NAME): installs one list of optional dependencies, once.
extra = tools/setup.sh extra $(1)

libraries: venv
	$(submake) package
	@tools/setup.sh libraries $(BUILD)/package

# ---- Targets for people -----------------------------------------------------

.PHONY: help demo build test core-test cc-test cuda-test gpu-check emulated-gpu-test asan ubsan \
  tsan aarch64 bench core-bench \
  instruction-counts \
  lint format wheel bazel clean

help:  ## Show this list
	@echo 'Targets (make TARGET [PYTHON=python3.12] [TENSORFLOW=REQUIREMENT] [JOBS=N] [V=1]):'
	@sed -n 's/^\([a-z-]*\):[^#]*## *\(.*\)/  \1|\2/p' $(firstword $(MAKEFILE_LIST)) \
	  | awk -F '|' '{ printf "%-19s %s\n", $$1, $$2 }'

demo: build  ## Set up everything, then train two models on these ops beside stock ones
	@$(call extra,demo)
	.venv/bin/python examples/demo.py

build: libraries  ## Set up .venv and compile; .venv/bin/python then imports gather_stitch
	@tools/setup.sh editable

test: core-test cuda-test cc-test emulated-gpu-test build  ## Set up everything, then run all tests but the sanitizers
	@$(call extra,test)
	.venv/bin/python -m pytest $(PYTEST_FLAGS) --doctest-glob=README.md tests/python README.md

core-test: tools  ## Run the C++ tests of the core, which need no TensorFlow
	$(submake) core_tests
	$(call on_each_cpu,$(BUILD)/core_tests)

cuda-test: tools  ## Compile the GPU kernels and look into what became of them, where nvcc is
ifeq ($(nvcc),)
	@echo '  NOTE     no nvcc, so nothing shows that the GPU kernels compile'
else
	$(submake) cuda_objects
	python3 tools/cuda_test.py '$(nvcc)' '$(BUILD)' $(CUDA_ARCHS)
endif

gpu-check: tools  ## Test and time the GPU kernels on a GPU; without one, compile and walk them
	+@MAKE='$(MAKE) --no-print-directory $(jobs)' tools/gpu_check.sh '$(nvcc)' '$(BUILD)'

cc-test: build  ## Run the tests and examples of the C++ client on an installed wheel
	@$(call extra,test)
	@$(call extra,demo)
	+@tools/cc_test.sh '$(MAKE) --no-print-directory $(jobs)' $(JOBS)

emulated-gpu-test: build  ## Run the GPU kernels on an emulated GPU, beside tensorflow-cpu
	@tools/setup.sh cpu_venv '$(CXX)'
	+@tools/emulated_gpu_test.sh '$(MAKE) --no-print-directory $(jobs)' '$(CXX)' $(PYTEST_FLAGS)

asan: tools  ## Run the C++ tests of the core under AddressSanitizer
	$(submake) core_tests BUILD=build/asan \
	  OPTIMIZE='-O1 -g -fno-omit-frame-pointer -fsanitize=address'
	$(call on_each_cpu,ASAN_OPTIONS=detect_stack_use_after_return=1 build/asan/core_tests)

ubsan: tools  ## Run the C++ tests of the core under UndefinedBehaviorSanitizer
	$(submake) core_tests BUILD=build/ubsan \
	  OPTIMIZE='-O1 -g -fno-omit-frame-pointer -fsanitize=undefined -fno-sanitize-recover=all'
	$(call on_each_cpu,UBSAN_OPTIONS=print_stacktrace=1 build/ubsan/core_tests)

tsan: tools  ## Run the C++ tests of the core under ThreadSanitizer
	$(submake) core_tests BUILD=build/tsan \
	  OPTIMIZE='-O1 -g -fno-omit-frame-pointer -fsanitize=thread'
	$(call on_each_cpu,TSAN_OPTIONS=halt_on_error=1 build/tsan/core_tests)

# At -O1, for the emulator is what takes the time.
aarch64: tools  ## Compile the core for aarch64 and run its tests in an emulator
	$(submake) core_tests BUILD=build/aarch64 CXX=aarch64-linux-gnu-g++ \
	  OPTIMIZE='-O1 -DNDEBUG' LDFLAGS=-static
	qemu-aarch64 build/aarch64/core_tests

bench: build  ## Time the ops beside TensorFlow, NumPy, PyTorch and JAX [QUICK=1] [BENCH_FLAGS=]
	@$(call extra,bench)
	$(submake) benchmark_library
	.venv/bin/python -m benchmarks $(if $(QUICK),--quick,--full) $(BENCH_FLAGS)
	@$(call extra,demo)
	$(if $(BENCH_FLAGS),,.venv/bin/python -m benchmarks.acceleration $(if $(QUICK),--quick,--full))

core-bench: tools  ## Time the loops of the core alone [BENCH_FLAGS=--benchmark_filter=...]
	$(submake) core_benchmark
	$(BUILD)/benchmarks/core_benchmark $(BENCH_FLAGS)

instruction-counts: tools  ## Compare the core's instruction counts with the kept ones
	$(submake) counted_jobs
	python3 -m benchmarks.core.instruction_counts $(BENCH_FLAGS)

lint: venv  ## Check formatting, types, includes and header guards
	@$(call extra,lint)
	@tools/lint.sh

format: venv  ## Rewrite the sources in the project's format
	@$(call extra,lint)
	@tools/lint.sh --fix

wheel: build  ## Build dist/tf_gather_stitch-*.whl for the TensorFlow in .venv
	@mkdir -p dist
	.venv/bin/python -m pip wheel --no-build-isolation --no-deps --wheel-dir dist .
	@ls -l dist/*.whl

bazel: venv  ## Build the library and run the C++ tests with Bazel, offline
	@tools/bazel.sh

clean:  ## Delete everything that was built; .venv stays
	@if [ -d build/bazel ]; then chmod -R u+w build/bazel; fi
	rm -rf build dist
	rm -f python/gather_stitch/*.so python/gather_stitch/_build_info.py
	rm -rf $(addprefix python/gather_stitch/,include cmake pkgconfig)
