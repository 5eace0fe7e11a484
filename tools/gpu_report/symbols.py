# SPDX-License-Identifier: MIT
"""Names for addresses of backtraces: `program(+0x1234)` gets the function's, by the symbols that the program itself has (ELF, 64 bits)."""
import bisect
import os
import re
import struct

FRAME = re.compile(r"^(\S+)\(\+0x([0-9a-f]+)\)", re.M)
SYMTAB, DYNSYM, FUNCTION = 2, 11, 2


def functions(path):
    """Sorted (address, size, name); empty for what is no such file or has no symbols."""
    with open(path, "rb") as f:
        data = f.read()
    if data[:6] != b"\x7fELF\x02\x01":
        return []
    at, = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, at + i * size) for i in range(count)]
    found = set()
    for _, kind, _, _, offset, length, link, _, _, entry in sections:
        if kind not in (SYMTAB, DYNSYM) or not entry:
            continue
        names = sections[link][4]
        for where in range(offset, offset + length, entry):
            name, info, _, _, value, bytes_ = struct.unpack_from("<IBBHQQ", data, where)
            if info & 15 == FUNCTION and value:
                end = data.index(b"\0", names + name)
                found.add((value, bytes_, data[names + name:end].decode("ascii", "replace")))
    return sorted(found)


class Names:
    def __init__(self):
        self.known = {}

    def of(self, path, address):
        if path not in self.known:
            try:
                self.known[path] = functions(path)
            except (OSError, struct.error, IndexError, ValueError):
                self.known[path] = []
        table = self.known[path]
        i = bisect.bisect_right(table, (address, 1 << 62, "")) - 1
        if i < 0 or address >= table[i][0] + max(table[i][1], 1):
            return None
        return f"{table[i][2]}+0x{address - table[i][0]:x}"

    def add(self, text):
        """The text with a name behind each frame that had none."""
        def one(m):
            name = self.of(m[1], int(m[2], 16)) if os.path.isabs(m[1]) else None
            return f"{m[1]}({name})" if name else m[0]
        return FRAME.sub(one, text)
