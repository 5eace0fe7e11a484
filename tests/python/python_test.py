# SPDX-License-Identifier: MIT
"""Pieces shared by the tests of the Python package: NAME_test.py CONVOY GROUP   (groups: the functions named test_<group> of the file)

The package is the one of the build beside the program CONVOY. Exit status 77: skipped."""
import os
import signal
import sys
import tempfile
import traceback

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CONVOY = os.path.abspath(sys.argv[1])
PACKAGE = os.path.join(os.path.dirname(os.path.dirname(CONVOY)), "python")
sys.path.insert(0, PACKAGE)
# What child processes import, too.
os.environ["PYTHONPATH"] = PACKAGE + os.pathsep + os.environ.get("PYTHONPATH", "")
# Background jobs of a script ignore SIGINT, and the test would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


def raises(kind, text, function, *arguments, **named):
    """The exception of a call, which must be of this class and have this text."""
    try:
        function(*arguments, **named)
    except kind as found:
        assert text in str(found), f"{text!r} is not in: {found}"
        return found
    raise AssertionError(f"{kind.__name__} with {text!r} was expected")


def main(tests):
    group = sys.argv[2]
    with tempfile.TemporaryDirectory() as folder:
        try:
            code = tests["test_" + group](os.path.realpath(folder)) or 0
        except Exception:
            traceback.print_exc(file=sys.stdout)
            code = 1
    print(f"{group}: {'passed' if code == 0 else 'skipped' if code == 77 else 'failed'}")
    sys.stdout.flush()
    sys.exit(code)
