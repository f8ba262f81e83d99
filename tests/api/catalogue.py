# SPDX-License-Identifier: Apache-2.0
"""The error catalogue has an entry for every code a user can meet, and none for others."""

import os
import re
import sys


def read(root, name):
    with open(os.path.join(root, name), encoding="utf-8") as file:
        return file.read()


root = sys.argv[1]
enumeration = re.search(r"enum class ErrorCode \{(.*?)\};", read(root, "include/verbena/base/error.h"), re.DOTALL)
codes = set(re.findall(r"^\s*(\w+)(?: = \d+)?,", enumeration.group(1), re.MULTILINE))
entries = re.findall(r"^### (\w+)$", read(root, "doc/errors.md"), re.MULTILINE)
if len(codes) < 20 or sorted(entries) != sorted(codes):
    sys.exit(f"missing {sorted(codes - set(entries))}, unknown {sorted(set(entries) - codes)}")
