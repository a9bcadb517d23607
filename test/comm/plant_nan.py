# SPDX-License-Identifier: BSD-3-Clause
"""Overwrites a weight of a running rank with NaN: a plausible value in the middle of its largest mapping, the
arena. For test/comm/check_faults.sh, as root.

    python3 plant_nan.py PROCESS
"""

import array
import math
import sys


def largest_mapping(process):
    best = (0, 0)
    with open(f"/proc/{process}/maps") as file:
        for line in file:
            words = line.split()
            begin, end = (int(word, 16) for word in words[0].split("-"))
            if words[1].startswith("rw-p") and len(words) < 6 and end - begin > best[1] - best[0]:
                best = (begin, end)
    return best


def main():
    process = int(sys.argv[1])
    begin, end = largest_mapping(process)
    planted = 0
    with open(f"/proc/{process}/mem", "r+b", buffering=0) as memory:
        memory.seek(begin)
        values = array.array("f", memory.read(end - begin))
        for i, value in enumerate(values):
            if 1e-3 < abs(value) < 1:
                values[i] = math.nan
                planted += 1
        memory.seek(begin)
        memory.write(values.tobytes())
    print(f"{planted} of {len(values)} numbers of process {process} are NaN now")


if __name__ == "__main__":
    main()
