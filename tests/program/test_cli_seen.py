#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The program as its user sees it: test_cli_seen.py CONVOY GROUP   (groups: the functions named test_<group> below)

Pages in a browser: Chromium, without a window. Exit 77 without it, or without a device."""

import json
import os
import re
import shutil
import subprocess
import sys

from cli import CONVOY, SMALL, check, expect, lines_of, main, read, write

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
# what Chromium asks for by itself
ITS_OWN = re.compile(r"https?://([\w.-]+\.)?(google|googleapis|gvt1|gstatic|googleusercontent)\.com[/:]")


def show(at, page, *more):
    """What it says of a page: stdout, the console's messages, and the addresses that it asks for."""
    net = at("net.json")
    done = subprocess.run([CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--no-first-run",
                           f"--user-data-dir={at('profile')}", "--enable-logging=stderr", f"--log-net-log={net}", "--window-size=1000,1600", *more, f"file://{page}"],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", timeout=100)
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    asked = {url for url in re.findall(r'"url":"(https?://[^"]*)"', read(net)) if not ITS_OWN.match(url)}
    return done.stdout, console, asked


def test_report_seen(at):
    """No message, no request, and the log's numbers, of a run that ended and of one that was killed."""
    if not CHROMIUM:
        print("skipped: there is no chromium")
        sys.exit(77)
    write(at("bad.html"), "<!DOCTYPE html><html><body><img src='http://127.0.0.1:9/x.png'><script>console.log('seen')</script></body></html>")
    _, console, asked = show(at, at("bad.html"), "--dump-dom")
    check(console and asked == {"http://127.0.0.1:9/x.png"}, f"a message and a request are noticed: {console} {asked}")
    expect(0, "train", *SMALL, "--epochs", 3, "--val-split", 0.2, "--log", at("a.jsonl"), "--report", at("a.html"), "-q")
    killed = subprocess.Popen([CONVOY, "train", *map(str, [*SMALL, "--epochs", 1000, "--log", at("b.jsonl"), "--report", at("b.html"), "-q"])], stdout=subprocess.DEVNULL)
    while killed.poll() is None and not (os.path.exists(at("b.html")) and "epochs</span>" in read(at("b.html"))):
        try:
            killed.wait(0.05)
        except subprocess.TimeoutExpired:
            pass
    killed.kill()
    killed.wait()
    expect(0, "report", at("a.jsonl"), at("b.jsonl"), "--out", at("both.html"))
    for name in ("a.html", "b.html", "both.html"):
        dom, console, asked = show(at, at(name), "--dump-dom")
        check(not console, f"{name}: messages: {console}")
        check(not asked, f"{name}: asks for {asked}")
        check("</body>" in dom and "<svg" in dom, f"{name}: {dom[:200]}")
        show(at, at(name), f"--screenshot={at('page.png')}")
        check(os.path.getsize(at("page.png")) > 20000, f"{name}: a screenshot of {os.path.getsize(at('page.png'))} bytes")
        if name == "a.html":
            lines = lines_of(at("a.jsonl"))
            last = [line for line in lines if "train_loss" in line][-1]
            for key in ("train_acc", "val_acc", "test_acc"):
                check(f"{last[key]:.4f}" in dom, f"{key} {last[key]} is not on the page: {json.dumps(last)}")


if __name__ == "__main__":
    main(globals())
