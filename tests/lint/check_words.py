#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Comments, messages and pages in words that anyone reads: check_words.py

Looks at the comments of C and OpenCL C in src, include, tools and cl, at a few identifiers, and for PHRASES also at texts and pages. A sentence has an actor that a noun names
(worker, exchange thread, watchdog, caller), and a word has one meaning (doc/architecture.md, "Words"). RULES are what a program can find of
that; each has sentences that it must refuse and sentences that it must let pass, which are tried first."""
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FOLDERS = ("src", "include", "tools", "cl")
ENDINGS = (".c", ".h", ".cl", ".clh")
BEGIN = r"(?:^|(?<=[.!?] )|(?<=[:;(·→] ))"          # of a sentence, or of a clause behind a colon

# (name, pattern, reason, refused, let pass); the pattern is searched in the text of a comment, its lines joined.
RULES = (
    ("what", re.compile(BEGIN + r"[Ww]hat(?:ever)?\b(?!\?)"),
     "begins with \"what\": name the thing",
     ("What is written then may wait.", "the same: what is not read again soon", "whatever comes back finds its place"),
     ("Says what the device lacks.", "the kernel reads what it stored")),
    ("who", re.compile(BEGIN + r"[Ww]ho(?:ever)?\b"),
     "begins with \"who\": name the actor (worker, exchange thread, watchdog, caller, user)",
     ("Who is given up keeps it.", "never under the lock: who is given up keeps it", "Whoever found it has logged it."),
     ("a user who asked for it", "the caller, whose lock it is")),
    ("actor", re.compile(r"\b(?:[Nn]obody|[Ss]omebody|[Ee]verybody|[Aa]nybody|[Ww]hoever|[Nn]o one else|[Ss]omeone)\b"),
     "no actor: name the thread, function, operation or person",
     ("where nobody wants it", "until somebody takes its times"), ("no thread joins it", "a link of another user")),
    ("told", re.compile(r"\b(?:[Tt]old|[Tt]ells? of)\b"),
     "\"told\" has several meanings: logged, reported, printed, output only",
     ("told, not asked for", "errors are told as debug messages"), ("logged at debug level",)),
    ("residual", re.compile(r"(?:\b[Ll]eft-?overs?\b|\bwhat rounding (?:left|leaves|took|takes)\b|"
                            r"\brounding (?:left|leaves|took|takes) (?:away|over|from)\b|\brounding's (?:rest|remainder)\b(?!.{0,40}residual))"),
     "rounding's remainder is the residual (or a rounding error)",
     ("what rounding took from the mean", "adds the leftover to the next gradient"),
     ("adds the residual to the next gradient", "samples left over by the floors", "the rounding error of the mean")),
    ("loss", re.compile(r"\b(?:device|worker)(?:'s|s'|s)? loss(?:es)?\b|\b[Ll]oss(?:es)? of (?:a|the|one|its|each) (?:device|worker)s?\b"),
     "loss is the training loss: a device has a fault, and is lost",
     ("after a device's loss", "the loss of a device"), ("a lost device", "a device's fault", "the loss of a step")),
    ("way", re.compile(r"\b(?:has|there is) (?:only )?one way only\b|\bsome other way\b"),
     "name it: algorithm, choice, order",
     ("which has one way only",), ("which has one algorithm only", "on the way back")),
)
# Phrases that neither comments nor texts of C nor the pages of PAGES may have: (name, pattern, better, refused, let pass).
PHRASES = (
    ("possible", re.compile(r"\b(?:is|are) (?:not )?possible\b"), "\"supported\", or the accepted values: \"expected 1 to 65536\"",
     ("%d classes: 1 to 65535 are possible", "this operator is not possible"), ("as soon as possible", "the possible gain")),
    ("tells", re.compile(r"\b[Tt]ells\b|\bsays of itself\b|\bwith the reason said\b"), "prints, reports, describes",
     ("This page tells how", "the end tells the shares"), ("two streams tell nothing",)),
    ("expected was", re.compile(r"\bexpected (?:was|were)\b"), "\"expected a number\"", ("expected was a number",), ("expected a number",)),
    ("is no", re.compile(r"\b(?:is|are) no (?:plain|checkpoint|safetensors|ONNX|gzip|JSON|folder|list|text|whole|log)\b"), "\"is not a checkpoint\"",
     ("%s is no plain file", "the header is no JSON object"), ("there is no device", "is not a checkpoint")),
    ("side by side", re.compile(r"\b(?:runs|[Ll]aid|[Ll]ays?) (?:them |runs )?side by side\b"), "compares",
     ("lays runs side by side", "several runs side by side"), ("two numbers side by side in a register",)),
    ("dry run", re.compile(r"\bdevices? on paper\b|\bcards? on paper\b|, on paper\b"), "dry run", ("a device on paper notes it",), ("a paper of 2021",)),
    ("brought", re.compile(r"\bbr(?:ings?|ought) (?:\w+ )?along\b"), "has, initial values", ("values that the network brings along",), ("brings an event",)),
    ("forever", re.compile(r"\bfor ever\b"), "forever", ("waits for ever",), ("waits forever",)),
    ("broken and why", re.compile(r"\bbroken and why\b|\bFor the impatient\b|\b[Mm]uster(?:ed|ing)?\b"), "with the reason; Quick try; check of the settings",
     ("what is broken and why",), ("broken ones with the reason",)),
)
PAGES = ("doc", "CONTRIBUTING.md", "SECURITY.md")
# Identifiers with "loss" for a device; an option and its key, which users know, stay.
LOSS_NAME = re.compile(r"\b\w*(?:devices?_loss(?:es)?|loss(?:es)?_(?:of_)?devices?|take_loss|loss_stops|loss_step)\w*\b")
LOSS_KNOWN = {"on_device_loss"}
# A file that a comment names exists; those of other projects are named here.
FILE = re.compile(r"(?<![\w./<-])((?:[\w-]+/)*[\w-]{3,}\.(?:c|h|cl|clh|py|sh|mut))\b(?![\w(])")
FOREIGN = re.compile(r"opencl-c\.h$|^(?:CL|linux)/")
OPEN_END = re.compile(r"^ *\* \*/$")


def sources():
    for folder in FOLDERS:
        for at, folders, names in os.walk(os.path.join(ROOT, folder)):
            folders[:] = sorted(f for f in folders if f != "__pycache__")
            for name in sorted(names):
                if name.endswith(ENDINGS):
                    yield os.path.relpath(os.path.join(at, name), ROOT)


def every_file():
    """Paths of the tree, and their ends: "clock.h", "base/clock.h", "src/base/clock.h"."""
    ends = set()
    for at, folders, names in os.walk(ROOT):
        folders[:] = [f for f in folders if f not in ("build", ".git", "__pycache__")]
        for name in names:
            parts = os.path.relpath(os.path.join(at, name), ROOT).split(os.sep)
            ends.update("/".join(parts[i:]) for i in range(len(parts)))
    return ends


TOKEN = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.S)


def comments(text):
    """(line, lines) of each comment, without its stars."""
    for m in TOKEN.finditer(text):
        token = m.group(0)
        if token[0] != "/":
            continue
        body = token[2:-2] if token[1] == "*" else token[2:]
        lines = [re.sub(r"^\s*\*? ?", "", line).rstrip() for line in body.split("\n")]
        yield text.count("\n", 0, m.start()) + 1, lines


def joined(lines):
    """The comment's text, and a function from a place in it to the number of its line."""
    starts, text = [], ""
    for line in lines:
        starts.append(len(text))
        text += line.strip() + " " if line.strip() else ""
    return re.sub(r"\s", " ", text), lambda place: sum(start <= place for start in starts) - 1


def code_of(text):
    return TOKEN.sub(lambda m: re.sub(r"[^\n]", " ", m.group(0)), text)


def literals(text):
    """(line, text) of each run of adjacent texts in quotes."""
    for m in re.finditer(r'"(?:\\.|[^"\\\n])*"(?:\s*\\?\s*"(?:\\.|[^"\\\n])*")*', TOKEN.sub(lambda t: t.group(0) if t.group(0)[0] == '"' else re.sub(r"[^\n]", " ", t.group(0)), text)):
        yield text.count("\n", 0, m.start()) + 1, re.sub(r'"\s*\\?\s*"', "", m.group(0))


def phrases_of(said, line_of):
    for name, pattern, better, _, _ in PHRASES:
        for m in pattern.finditer(said):
            yield line_of(m.start()), f"{name}: better {better}: {said[max(m.start() - 20, 0):m.start() + 40].strip()}"


def pages():
    """The pages for readers; generated ones repeat texts that were looked at in the source."""
    for page in PAGES:
        path = os.path.join(ROOT, page)
        for at, folders, names in os.walk(path) if os.path.isdir(path) else [(ROOT, [], [page])]:
            for name in sorted(names):
                if name.endswith(".md") and name != "reference.md":
                    yield os.path.relpath(os.path.join(at, name), ROOT)


def faults_of(path, text, files):
    kernel = path.endswith((".cl", ".clh"))  # their text is the key of compiled kernels
    for line, said in () if kernel else literals(text):
        yield from phrases_of(said, lambda place: line)
    for first, lines in comments(text):
        said, line_of = joined(lines)
        for name, pattern, reason, _, _ in RULES:
            for m in pattern.finditer(said):
                yield first + line_of(m.start()), f"{name}: {reason}: {said[m.start():m.start() + 60].strip()}"
        if not kernel: yield from phrases_of(said, lambda place: first + line_of(place))
        for m in FILE.finditer(said):
            if m.group(1) not in files and not FOREIGN.search(m.group(1)):
                yield first + line_of(m.start()), f"file: there is no {m.group(1)}"
    for number, line in enumerate(text.split("\n"), 1):
        if OPEN_END.match(line):
            yield number, "the end of a comment stands behind its last word"
    for m in LOSS_NAME.finditer(code_of(text)):
        if m.group(0) not in LOSS_KNOWN:
            yield text.count("\n", 0, m.start()) + 1, f"loss: {m.group(0)}: loss is the training loss; a device has a fault, and is lost"


def try_rules(files):
    """The rules on their own examples: a rule that finds nothing any more would let everything pass."""
    faults = []
    for name, _, _, refused, let_pass in RULES:
        for examples, wanted in ((refused, True), (let_pass, False)):
            for example in examples:
                for planted in (f"/* {example} */\nint x;\n", f"int x; /* SPDX\n * First sentence. {example} */\n"):
                    found = any(fault.startswith(name + ":") for _, fault in faults_of("planted", planted, files))
                    if found != wanted:
                        faults.append(f"rule {name} {'misses' if wanted else 'refuses'}: {example}")
    for name, _, _, refused, let_pass in PHRASES:
        for examples, wanted in ((refused, True), (let_pass, False)):
            for example in examples:
                for planted in (f"/* {example}. */\nint x;\n", f'const char *x = "{example}"\n    " and so on";\n'):
                    found = any(fault.startswith(name + ":") for _, fault in faults_of("planted", planted, files))
                    if found != wanted:
                        faults.append(f"phrase {name} {'misses' if wanted else 'refuses'}: {example}")
    if not list(faults_of("planted", "int cvy_take_loss(void);", files)) or not list(faults_of("planted", "/* gone/none.h */", files)):
        faults.append("the rules of identifiers or files miss theirs")
    return faults


def main():
    files = every_file()
    faults = try_rules(files)
    n = 0
    for path in sources():
        n += 1
        with open(os.path.join(ROOT, path), encoding="utf-8") as f:
            faults += [f"{path}:{line}: {fault}" for line, fault in sorted(faults_of(path, f.read(), files))]
    for path in pages():
        n += 1
        with open(os.path.join(ROOT, path), encoding="utf-8") as f:
            for number, line in enumerate(f, 1):
                faults += [f"{path}:{number}: {fault}" for _, fault in phrases_of(line, lambda place: number)]
    for fault in faults:
        print(fault)
    print(f"words: {n} files, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
