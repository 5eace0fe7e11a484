/* SPDX-License-Identifier: MIT */
#include "src/times/trace.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "src/base/file.h"
#include "src/base/mem.h"

struct cvy_trace {
  FILE *file;
  char *path;
  cvy_file_lock *lock; /* NULL: a pipe or device */
  uint64_t begin_ns;
  long events_max, events, left_out, first_left_out;
  bool any, failed;
  int error; /* errno of the first failure */
};

static void fail(cvy_trace *t) {
  if (!t->failed) t->error = errno;
  t->failed = true;
}

/* Takes ownership of `event`. Writes nothing after the first failure. */
static void put(cvy_trace *t, json_t *event) {
  if (!t->failed) {
    errno = ENOMEM;
    if (!event || fputs(t->any ? ",\n" : "\n", t->file) < 0 ||
        json_dumpf(event, t->file, JSON_COMPACT | JSON_REAL_PRECISION(15)) != 0)
      fail(t);
    t->any = true;
  }
  json_decref(event);
}

cvy_status cvy_trace_open(const char *path, long events_max, uint64_t begin_ns, cvy_trace **out) {
  cvy_status status = CVY_OK;
  cvy_trace *t = cvy_calloc(1, sizeof *t);
  bool made;
  const char *why;
  int fd = -1;
  *out = NULL;
  CVY_REQUIRE(t, CVY_E_MEMORY, "out of host memory");
  t->path = cvy_strdup(path);
  CVY_REQUIRE(t->path, CVY_E_MEMORY, "out of host memory");
  fd = cvy_file_append(path, &made, &why);
  CVY_REQUIRE(fd >= 0, CVY_E_IO, "%s: the trace cannot be written: %s", path, why);
  if (cvy_file_kind_of(path) == CVY_FILE_REGULAR) { /* an old trace is truncated only if no other run writes it */
    CVY_TRY(cvy_file_lock_take("the trace", path, &t->lock));
    CVY_REQUIRE(ftruncate(fd, 0) == 0, CVY_E_IO, "%s: the trace cannot be written: %s", path, strerror(errno));
  }
  t->file = fdopen(fd, "a");
  CVY_REQUIRE(t->file, CVY_E_MEMORY, "%s: the trace cannot be written: %s", path, strerror(errno));
  t->events_max = events_max;
  t->begin_ns = begin_ns;
  t->first_left_out = -1;
  if (fputs("{\"traceEvents\":[", t->file) < 0) fail(t);
  *out = t;
  return CVY_OK;
fail:
  if (fd >= 0) close(fd);
  if (t) {
    cvy_file_lock_release(&t->lock);
    cvy_free(t->path);
  }
  cvy_free(t);
  return status;
}

void cvy_trace_name_process(cvy_trace *t, int process, const char *name) {
  put(t, json_pack("{ss ss si si s{ss+}}", "name", "process_name", "ph", "M", "pid", process, "tid", 0, "args", "name",
                   name, ""));
  put(t, json_pack("{ss ss si si s{si}}", "name", "process_sort_index", "ph", "M", "pid", process, "tid", 0, "args",
                   "sort_index", process));
}

void cvy_trace_name_row(cvy_trace *t, cvy_trace_row row, const char *name) {
  put(t, json_pack("{ss ss si si s{ss+}}", "name", "thread_name", "ph", "M", "pid", row.process, "tid", row.thread,
                   "args", "name", name, ""));
  put(t, json_pack("{ss ss si si s{si}}", "name", "thread_sort_index", "ph", "M", "pid", row.process, "tid", row.thread,
                   "args", "sort_index", row.thread));
}

void cvy_trace_slice(cvy_trace *t, cvy_trace_row row, const char *category, const char *name, long step,
                     uint64_t begin_ns, uint64_t end_ns, json_t *args) {
  if (end_ns < t->begin_ns || end_ns < begin_ns) {
    json_decref(args);
    return;
  }
  if (t->events == t->events_max) {
    t->left_out++;
    if (step >= 0 && (t->first_left_out < 0 || step < t->first_left_out)) t->first_left_out = step;
    json_decref(args);
    return;
  }
  const uint64_t begin = begin_ns > t->begin_ns ? begin_ns - t->begin_ns : 0, end = end_ns - t->begin_ns;
  json_t *const all = args ? args : json_object();
  if (step >= 0) json_object_set_new(all, "step", json_integer(step));
  t->events++;
  put(t, json_pack("{ss ss ss si si sf sf so}", "name", name, "cat", category, "ph", "X", "pid", row.process, "tid",
                   row.thread, "ts", 1e-3 * (double)begin, "dur", 1e-3 * (double)(end - begin), "args", all));
}

long cvy_trace_events(const cvy_trace *t) { return t->events; }
long cvy_trace_left_out(const cvy_trace *t) { return t->left_out; }
long cvy_trace_first_left_out(const cvy_trace *t) { return t->first_left_out; }

cvy_status cvy_trace_close(cvy_trace **trace, json_t *other) {
  cvy_status status = CVY_OK;
  cvy_trace *const t = *trace;
  if (!t) {
    json_decref(other);
    return CVY_OK;
  }
  json_object_set_new(other, "events", json_integer(t->events));
  json_object_set_new(other, "events_left_out", json_integer(t->left_out));
  if (t->first_left_out >= 0) json_object_set_new(other, "first_step_left_out", json_integer(t->first_left_out));
  if (!t->failed &&
      (fputs("\n],\"displayTimeUnit\":\"ms\",\"otherData\":", t->file) < 0 ||
       json_dumpf(other, t->file, JSON_COMPACT | JSON_REAL_PRECISION(15)) != 0 || fputs("}\n", t->file) < 0))
    fail(t);
  json_decref(other);
  if (fclose(t->file) != 0) fail(t);
  CVY_REQUIRE(!t->failed, CVY_E_IO, "%s: the trace could not be written in full: %s", t->path, strerror(t->error));
fail:
  cvy_file_lock_release(&t->lock);
  cvy_free(t->path);
  cvy_free(t);
  *trace = NULL;
  return status;
}
