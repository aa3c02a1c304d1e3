# Copyright The gather_stitch Authors.
# SPDX-License-Identifier: Apache-2.0
"""Prints one list of optional dependencies of pyproject.toml, one a line."""

import pathlib
import sys

if sys.version_info >= (3, 11):
    import tomllib
else:
    from pip._vendor import tomli as tomllib


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(f"usage: {sys.argv[0]} NAME")
    path = pathlib.Path(__file__).resolve().parent.parent / "pyproject.toml"
    with path.open("rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    if sys.argv[1] not in extras:
        sys.exit(f"{path} has no optional dependencies '{sys.argv[1]}', only {', '.join(extras)}")
    for requirement in extras[sys.argv[1]]:
        print(requirement.replace(" ", ""))


if __name__ == "__main__":
    main()
