# SPDX-License-Identifier: MIT
"""The rule of a folder of the source: comment lines at the top of its meson.build, which the test `layers` and the drawing of the house read.

    # A sentence on what the folder holds.
    # May include: base cl. Reaches no OpenCL, threads.     folders beside itself; what stays away behind all of its includes, too
    # Public headers: net.                                  headers of include/convoy whose types the folder knows first"""
import os
import re

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RULE = re.compile(r"^# (.+)\n# May include: ([^.]+(?:\.h[^.]*)*)\.(?: Reaches no ([\w ,]+)\.)?$", re.M)
PUBLIC = re.compile(r"^# Public headers: ([\w, ]+)\.$", re.M)


def read_meson(folder):
    """The text of its meson.build, "" where there is none."""
    path = os.path.join(ROOT, folder, "meson.build")
    if not folder or not os.path.exists(path):
        return ""
    with open(path, encoding="utf-8") as f:
        return f.read()


class Rule:
    """`layer`: the folder that has the rule; `is_set`: it has one."""

    def __init__(self, layer):
        text = read_meson(layer)
        rule, public = RULE.search(text), PUBLIC.search(text)
        self.layer, self.is_set = layer, bool(rule)
        self.sentence = rule.group(1) if rule else ""
        self.may = re.findall(r"[^\s,]+", rule.group(2).replace("public headers", "")) if rule else []
        self.without = re.findall(r"\w+", rule.group(3) or "") if rule else []
        self.public = re.findall(r"\w+", public.group(1)) if public else []
