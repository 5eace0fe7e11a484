#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Counts test cases: check_report.py RESULTS LABEL TESTLOG.json   adds a run's cases to RESULTS (a text file, made if it is not there)
                     check_report.py RESULTS                      names what failed and was skipped, then prints the last line

TESTLOG.json is what `meson test` leaves in meson-logs. A cmocka program counts with each of its cases, read from its output; any other
program counts as one case. A program that fails without a failed case of its own (a crash, the time limit, a sanitizer) counts as one
failed case more; one that exits 77 as one skipped. RESULTS has a line `passed|failed|skipped LABEL program case` per case, in order.
Exit of the second form: 1 if anything failed, or if nothing passed."""
import json
import re
import sys

# "[       OK ] name"; not the summary's "[  FAILED  ] path/program: 2 test(s), listed below" and not a message, "[  ERROR   ] --- text".
CASE = re.compile(r"^\[\s+(OK|FAILED|SKIPPED|ERROR)\s+\] (?!---|(?:.*: )?\d+ test\(s\))(.+?)\s*$", re.M)
WORD = {"OK": "passed", "FAILED": "failed", "ERROR": "failed", "SKIPPED": "skipped"}


def cases_of(record):
    """{case: word} of one program's record"""
    output = record.get("stdout", "") + "\n" + (record.get("stderr") or "")
    cases = {}
    for word, case in CASE.findall(output):
        if cases.get(case) != "failed":               # a case is named where it runs and in the summary; the worst word stands
            cases[case] = WORD[word]
    result = record["result"]
    if result == "SKIP":
        return {"-": "skipped"}
    if result in ("OK", "EXPECTEDFAIL"):
        return cases or {"-": "passed"}
    if "failed" not in cases.values():
        why = "time-limit" if result == "TIMEOUT" else f"exit-status-{record.get('returncode')}"
        cases[why] = "failed"
    return cases


def add(results, label, log):
    with open(log, encoding="utf-8") as f, open(results, "a", encoding="utf-8") as out:
        for line in f:
            record = json.loads(line)
            program = re.sub(r".*[/:]\s*", "", record["name"])
            for case, word in cases_of(record).items():
                out.write(f"{word} {label} {program} {case}\n")


def report(results):
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    named = {"failed": [], "skipped": []}
    try:
        with open(results, encoding="utf-8") as f:
            lines = f.read().splitlines()
    except FileNotFoundError:
        lines = []
    for line in lines:
        word, label, program, case = line.split(" ", 3)
        counts[word] += 1
        if word in named:
            named[word].append(f"{word}: {label}: {program}" + ("" if case == "-" else f" {case}"))
    for line in named["skipped"] + named["failed"]:
        print(line)
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    return 1 if counts["failed"] or not counts["passed"] else 0


def main():
    if len(sys.argv) == 4:
        add(*sys.argv[1:])
        return 0
    if len(sys.argv) == 2:
        return report(sys.argv[1])
    print(__doc__, file=sys.stderr)
    return 2


sys.exit(main())
