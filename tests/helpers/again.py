#!/usr/bin/env python3
"""Reads or writes 20 files of a directory, again and again, until that fails."""

import os
import sys

how, directory = sys.argv[1:]
flags = os.O_RDONLY if how == "read" else os.O_RDWR
files = [os.open(f"{directory}/read{number}", flags) for number in range(20)]
count = 0
try:
    while True:
        for file in files:
            count += 1
            if how == "read":
                os.pread(file, 4096, 0)
            else:
                os.pwrite(file, b"%08d" % count, 0)
except OSError:
    pass
