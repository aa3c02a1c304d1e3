# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""What Bazel's own tools load from rules_cc, as the native rules.

The rules_cc that Debian packages is made for a newer Bazel than Debian's.
"""

cc_binary = native.cc_binary
cc_import = native.cc_import
cc_library = native.cc_library
cc_proto_library = native.cc_proto_library
cc_test = native.cc_test
cc_toolchain = native.cc_toolchain
cc_toolchain_alias = native.cc_toolchain_alias
cc_toolchain_suite = native.cc_toolchain_suite
