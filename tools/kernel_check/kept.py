# SPDX-License-Identifier: MIT
"""Kept results: a file for each compilation, whose name is a hash of all that it follows from."""
import hashlib
import json
import os


class Kept:
    def __init__(self, folder):
        self.folder = folder
        os.makedirs(folder, exist_ok=True)

    @staticmethod
    def key(*parts):
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]

    def read(self, key):
        """None where nothing of that name is kept, or nothing that can be read."""
        try:
            with open(os.path.join(self.folder, key + ".json"), encoding="utf-8") as f:
                return json.load(f)
        except (OSError, ValueError):
            return None

    def write(self, key, result):
        path = os.path.join(self.folder, key + ".json")
        with open(f"{path}.{os.getpid()}", "w", encoding="utf-8") as f:
            json.dump(result, f)
        os.replace(f"{path}.{os.getpid()}", path)
