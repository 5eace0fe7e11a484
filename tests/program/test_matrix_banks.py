#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""cl/matrix_core.clh's swizzles: test_matrix_banks.py CL_FOLDER

Local memory of NVIDIA's GPUs has 32 banks of 4 bytes; accesses of 16 bytes go eight lanes at a time. The functions of the file that say where
a chunk of 16 bytes lies are evaluated as they stand there (their expressions mean the same in C and in Python), for all lanes and tiles: the
eight chunks of a turn must be in different eighths of 128 bytes. No lane of a fragment may share its number with another, either."""
import os
import re
import sys

NAMES = {"CHUNK": 4, "ROW_CHUNKS": 4, "MATRIX_K": 16, "SLICE_K": 8}
TILES = ((128, 128, 256), (128, 64, 128), (64, 64, 64))     # TILE_M, TILE_N, work-items


def functions(path):
    with open(path, encoding="utf-8") as f:
        text = f.read()
    found = dict(NAMES)
    for name, parameters, body in re.findall(r"static inline int (\w+)\(((?:int \w+(?:, )?)+)\) \{\s*return ([^;]+);\s*\}", text):
        words = ", ".join(word.split()[1] for word in parameters.split(", "))
        found[name] = eval(f"lambda {words}: {' '.join(body.split())}", found)
    return found


def check(what, places):
    """Places (floats) of chunks, eight at a time."""
    for at in range(0, len(places), 8):
        turn = places[at:at + 8]
        if any(place % 4 for place in turn) or len({place // 4 % 8 for place in turn}) != 8:
            sys.exit(f"{what}: the chunks of lanes {at % 32} to {at % 32 + 7} are at floats {turn}: banks are shared")


def main(folder):
    f = functions(os.path.join(folder, "matrix_core.clh"))
    down, across = f["matrix_place_down"], f["matrix_place_across"]
    lanes = range(32)
    for slice_ in range(2):
        check("ldmatrix of a", [f["named_by_a"](lane, slice_) for lane in lanes])
        check("ldmatrix of b", [f["named_by_b"](lane, slice_) for lane in lanes])
        for upper in range(2):
            for width in (64, 128):
                check("chunks of lanes", [f["chunk_of_lane"](lane, slice_, upper, width) for lane in lanes])
                numbers = [f["chunk_of_lane"](lane, slice_, upper, width) + i for lane in lanes for i in range(4)]
                if len(set(numbers)) != 128:
                    sys.exit("two lanes read the same number")
    for m, n, items in TILES:
        at_once = items // (m // 2)
        check(f"copies of a, {m}x{n}", [down(item // at_once, item % at_once) for item in range(items)])
        check(f"copies of b down, {m}x{n}", [down(item // 4, item % 4) for item in range(items)])
        for width in (m, n):
            row = width // 4
            check(f"copies across, {m}x{n}", [across(item // row, item % row, width) for item in range(items)])
        # a tile's places: each once, within it, and those that the kernels derive from the first row's
        for rows in (m, n):
            places = sorted(down(row, chunk) for row in range(rows) for chunk in range(4))
            if places != list(range(0, rows * 16, 4)):
                sys.exit(f"{rows} rows down: places are lost or doubled")
            if sorted(across(k, chunk, rows) for k in range(16) for chunk in range(rows // 4)) != places:
                sys.exit(f"{rows} results across: places are lost or doubled")
        if any(down(row + 16, chunk) != down(row, chunk) + 256 or across(row % 12 + 4, chunk, n) != across(row % 12, chunk, n) + 4 * n
               for row in range(16) for chunk in range(4)):
            sys.exit("rows that are 16 apart, or depths that are 4 apart, are swizzled differently")
    if sorted(f["matrix_column_of_row"](row) for row in range(128)) != list(range(128)):
        sys.exit("columns of b are lost or doubled")
    print("no bank conflicts")


if __name__ == "__main__":
    main(sys.argv[1])
