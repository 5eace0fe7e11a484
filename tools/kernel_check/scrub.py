# SPDX-License-Identifier: MIT
"""The text of LLVM 15's intermediate language, with typed pointers, as LLVM 7's, which libnvvm reads for GPUs before Blackwell.

Taken out: attributes that LLVM 7 does not know (none changes what the code does; they are hints to the optimiser). Written otherwise: fneg,
poison, freeze, types within byval and sret. Added: the triple, data layout and version that libnvvm asks for, and each kernel's group size, which
clang leaves in OpenCL's own words."""
import re

HEADER = {
    "datalayout": "e-p:64:64:64-i1:8:8-i8:8:8-i16:16:16-i32:32:32-i64:64:64-i128:128:128-f32:32:32-f64:64:64-v16:16:16-v32:32:32-v64:64:64-"
                  "v128:128:128-n16:32:64",
    "triple": "nvptx64-nvidia-cuda",
}
# Of a group of attributes (attributes #0 = { … }), these are left; strings for LLVM's own NVPTX are not.
FUNCTION_ATTRIBUTES = {"alwaysinline", "argmemonly", "convergent", "inlinehint", "inaccessiblememonly", "noinline", "norecurse", "noreturn", "nounwind",
                       "readnone", "readonly", "speculatable", "writeonly"}
UNKNOWN = r" (?:noundef|immarg|allocptr|nofree|nosync|nocallback|willreturn|mustprogress)\b(?! [=:])"


def scrub_line(line):
    if m := re.match(r"target (\w+) = ", line):
        return f'target {m.group(1)} = "{HEADER[m.group(1)]}"'
    if m := re.match(r"(attributes #\d+ = \{)(.*)\}", line):
        return f"{m.group(1)} {' '.join(word for word in m.group(2).split() if word in FUNCTION_ATTRIBUTES)} }}"
    if line.startswith(("!", "source_filename", ";")):
        return line
    line = re.sub(UNKNOWN, "", line)
    line = re.sub(r"\b(byval|sret)\((?:[^()]|\([^()]*\))*\)", r"\1", line)
    line = re.sub(r"\bpoison\b", "undef", line)
    line = re.sub(r"= fneg (?:[a-z]+ )*((?:<\d+ x )?)float(>?) ", lambda m: "= fsub " + negative_zero(m.group(1)), line)
    # freeze x: x itself, by an instruction that LLVM 7 has
    line = re.sub(r"= freeze (i\d+|<\d+ x i\d+>) ", r"= or \1 zeroinitializer, " if "freeze <" in line else r"= or \1 0, ", line)
    return line


def negative_zero(vector):
    if not vector:
        return "float -0.0, "
    width = int(vector[1:].split()[0])
    return f"<{width} x float> <{', '.join(['float -0.0'] * width)}>, "


def group_sizes(text):
    """Lines of metadata that give each kernel the group size of its reqd_work_group_size."""
    numbers = dict(re.findall(r"^(!\d+) = !\{(i32 \d+, i32 \d+, i32 \d+)\}$", text, re.M))
    types = {name: kind for kind, name in re.findall(r"^!\d+ = !\{(void \(.*\)\*) @(\w+), !\"kernel\", i32 1\}$", text, re.M)}
    lines = []
    for name, size in re.findall(r"^define .*@(\w+)\(.*!reqd_work_group_size (!\d+)", text, re.M):
        if name in types and size in numbers:
            x, y, z = re.findall(r"i32 (\d+)", numbers[size])
            lines.append(f'{{ {types[name]} @{name}, !"reqntidx", i32 {x}, !"reqntidy", i32 {y}, !"reqntidz", i32 {z} }}')
    return lines


def scrub(text):
    added, out = group_sizes(text), []
    free = 1 + max([int(n) for n in re.findall(r"^!(\d+) = ", text, re.M)], default=-1)
    names = [f"!{free + i}" for i in range(len(added))]
    version = f"!{free + len(added)}"
    annotated = False
    for line in text.split("\n"):
        if m := re.match(r"!nvvm\.annotations = !\{(.*)\}", line):
            line, annotated = f"!nvvm.annotations = !{{{', '.join([m.group(1), *names])}}}", True
        out.append(scrub_line(line))
    if names and not annotated:
        out.append(f"!nvvm.annotations = !{{{', '.join(names)}}}")
    out += [f"{name} = !{line}" for name, line in zip(names, added)]
    out += [f"!nvvmir.version = !{{{version}}}", f"{version} = !{{i32 2, i32 0}}", ""]
    return "\n".join(out)
