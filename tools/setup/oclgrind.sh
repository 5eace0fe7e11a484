#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Runs a program under oclgrind and fails when oclgrind found anything: tools/setup/oclgrind.sh PROGRAM [ARGUMENT]…
#
# oclgrind itself always exits with the program's status, whatever it saw, so the truth is its log: it must stay empty. Memory errors,
# data races (in local and global memory), divergent barriers and misaligned accesses count. Not asked for: --check-api, because the
# tests call the API wrongly on purpose, and --uninitialized, which takes the NaN-poisoned and padded parts of buffers for errors
# when a vector load merely touches them.
# OCLGRIND_OPTIONS adds options (say, --uninitialized). OCLGRIND_LOG keeps the log in that file.
set -u
if [ $# = 0 ]; then echo "usage: tools/setup/oclgrind.sh PROGRAM [ARGUMENT]…" >&2; exit 2; fi
command -v oclgrind >/dev/null || { echo "oclgrind.sh: oclgrind is not installed (Debian: package oclgrind)" >&2; exit 77; }

log=${OCLGRIND_LOG:-$(mktemp)}
: >"$log"
# shellcheck disable=SC2086
CVY_TEST_OCLGRIND=1 oclgrind --data-races --max-errors 20 --log "$log" ${OCLGRIND_OPTIONS:-} "$@"
status=$?
if [ -s "$log" ]; then
  echo "oclgrind found errors in: $*" >&2
  head -n 80 "$log" >&2
  [ "$status" != 0 ] || status=1
fi
[ -n "${OCLGRIND_LOG:-}" ] || rm -f "$log"
exit $status
