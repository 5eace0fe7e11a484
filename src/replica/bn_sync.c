/* SPDX-License-Identifier: MIT */
#include "src/replica/bn_sync.h"

#include "src/base/clock.h"
#include "src/base/mem.h"

typedef struct room {
  float *parts; /* n_floats per device */
  float *result;
  int arrived; /* devices whose part has arrived */
  long last;   /* number of the last synchronisation with a result, -1: none in this step */
} room;

/* A device's state in the synchronisations; used only by its worker. */
typedef struct seat {
  struct cvy_bn_sync *sync;
  int device;
  long meetings;      /* synchronisations in this step so far */
  uint64_t waited_ns; /* for the others */
  cvy_batchnorm_parts parts;
} seat;

struct cvy_bn_sync {
  int n_devices;
  size_t n_floats;
  cvy_roster *roster;
  seat *seats;
  int *shares; /* of the step */
  int n_parts; /* devices with samples */
  room rooms[2];
  const float **present; /* scratch of the worker that combines: parts and samples of devices with samples */
  int *samples;
};

void cvy_bn_combine_moments(const float *const *parts, const int *samples, int n_parts, size_t pitch, float *out) {
  double n = 0;
  for (int p = 0; p < n_parts; p++) n += samples[p];
  for (size_t c = 0; c < pitch; c++) {
    const double first = parts[0][c];
    double above = 0, squares = 0;
    for (int p = 1; p < n_parts; p++) above += samples[p] * ((double)parts[p][c] - first);
    const double mean = first + above / n;
    for (int p = 0; p < n_parts; p++) {
      const double d = (double)parts[p][c] - mean;
      squares += samples[p] * ((double)parts[p][pitch + c] + d * d);
    }
    out[c] = (float)mean;
    out[pitch + c] = (float)(squares / n);
  }
}

void cvy_bn_combine_sums(const float *const *parts, int n_parts, size_t n, float *out) {
  for (size_t j = 0; j < n; j++) {
    double sum = 0;
    for (int p = 0; p < n_parts; p++) sum += (double)parts[p][j];
    out[j] = (float)sum;
  }
}

/* The last worker to arrive calls this, with the roster's lock. */
static void combine(cvy_bn_sync *s, room *r, cvy_batchnorm_pass pass, size_t n_floats) {
  int n = 0;
  for (int device = 0; device < s->n_devices; device++) {
    if (s->shares[device] == 0) continue;
    s->present[n] = r->parts + (size_t)device * s->n_floats;
    s->samples[n++] = s->shares[device];
  }
  if (pass == CVY_BATCHNORM_FORWARD) cvy_bn_combine_moments(s->present, s->samples, n, n_floats / 2, r->result);
  else cvy_bn_combine_sums(s->present, n, n_floats, r->result);
}

static cvy_status read_part(cvy_queue *queue, cvy_buffer *values, size_t at_bytes, size_t n_floats, float *to) {
  cvy_status status = CVY_OK;
  cvy_event *read = NULL;
  CVY_TRY(cvy_buffer_read(queue, values, at_bytes, n_floats * sizeof *to, to, NULL, &read));
  CVY_TRY(cvy_queue_flush(queue));
  CVY_TRY(cvy_event_wait(read));
fail:
  cvy_event_destroy(&read);
  return status;
}

/* cvy_batchnorm_parts.combine of a seat. */
static cvy_status meet(void *user, cvy_batchnorm_pass pass, cvy_queue *queue, cvy_buffer *values, size_t read_bytes,
                       size_t write_bytes, size_t n_floats) {
  cvy_status status = CVY_OK;
  seat *const own = user;
  cvy_bn_sync *const s = own->sync;
  const long number = own->meetings++;
  room *const r = &s->rooms[number % 2];
  cvy_event *write = NULL;
  CVY_ASSERT(n_floats <= s->n_floats);
  CVY_TRY(read_part(queue, values, read_bytes, n_floats, r->parts + (size_t)own->device * s->n_floats));
  cvy_roster_lock(s->roster);
  if (++r->arrived == s->n_parts) {
    combine(s, r, pass, n_floats);
    r->arrived = 0;
    r->last = number;
    cvy_roster_wake(s->roster);
  }
  const uint64_t here = cvy_clock_ns();
  while (r->last < number && !cvy_roster_halted(s->roster)) cvy_roster_sleep(s->roster, own->device);
  own->waited_ns += cvy_clock_ns() - here;
  const bool there = r->last >= number;
  cvy_roster_unlock(s->roster);
  if (!there) return CVY_E_INTERRUPTED; /* the thread that failed has logged the reason */
  CVY_TRY(cvy_buffer_write(queue, values, write_bytes, n_floats * sizeof *r->result, r->result, NULL, &write));
fail:
  cvy_event_destroy(&write);
  return status;
}

cvy_status cvy_bn_sync_create(cvy_roster *roster, size_t n_floats, cvy_bn_sync **out) {
  cvy_status status = CVY_OK;
  const size_t n = (size_t)cvy_roster_size(roster);
  cvy_bn_sync *s = cvy_calloc(1, sizeof *s);
  *out = NULL;
  CVY_REQUIRE(s, CVY_E_MEMORY, "out of host memory");
  *s = (cvy_bn_sync){.n_devices = (int)n,
                     .n_floats = n_floats,
                     .roster = roster,
                     .seats = cvy_calloc(n, sizeof *s->seats),
                     .shares = cvy_calloc(n, sizeof *s->shares),
                     .present = cvy_calloc(n, sizeof *s->present),
                     .samples = cvy_calloc(n, sizeof *s->samples)};
  bool there = s->seats && s->shares && s->present && s->samples;
  for (int i = 0; i < 2; i++) {
    s->rooms[i] =
        (room){.parts = cvy_calloc(n * n_floats, sizeof(float)), .result = cvy_calloc(n_floats, sizeof(float))};
    there = there && s->rooms[i].parts && s->rooms[i].result;
  }
  CVY_REQUIRE(there, CVY_E_MEMORY, "out of host memory for batch statistics of %d devices", (int)n);
  *out = s;
  return CVY_OK;
fail:
  cvy_bn_sync_destroy(&s);
  return status;
}

void cvy_bn_sync_destroy(cvy_bn_sync **sync) {
  cvy_bn_sync *const s = *sync;
  if (!s) return;
  for (int i = 0; i < 2; i++) {
    cvy_free(s->rooms[i].parts);
    cvy_free(s->rooms[i].result);
  }
  cvy_free(s->seats);
  cvy_free(s->shares);
  cvy_free(s->present);
  cvy_free(s->samples);
  cvy_free(s);
  *sync = NULL;
}

void cvy_bn_sync_begin(cvy_bn_sync *s, const int *shares) {
  int batch = 0;
  if (!s) return;
  s->n_parts = 0;
  for (int d = 0; d < s->n_devices; d++) {
    s->shares[d] = shares[d];
    s->n_parts += shares[d] > 0;
    batch += shares[d];
  }
  for (int d = 0; d < s->n_devices; d++)
    s->seats[d] = (seat){.sync = s, .device = d, .parts = {.batch = batch, .combine = meet, .user = &s->seats[d]}};
  for (int i = 0; i < 2; i++) {
    s->rooms[i].arrived = 0;
    s->rooms[i].last = -1;
  }
}

double cvy_bn_sync_waited(const cvy_bn_sync *s, int device) {
  return s ? 1e-9 * (double)s->seats[device].waited_ns : 0;
}

const cvy_batchnorm_parts *cvy_bn_sync_parts(const cvy_bn_sync *s, int device) {
  return s && s->n_parts > 1 ? &s->seats[device].parts : NULL;
}
