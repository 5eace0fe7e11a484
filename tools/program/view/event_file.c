/* SPDX-License-Identifier: MIT */
#include "tools/program/view/event_file.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/file.h"
#include "tools/program/messages.h"

uint32_t event_file_crc(const void *bytes, size_t size) {
  static uint32_t table[256];
  if (table[1] == 0) {
    for (uint32_t i = 0; i < 256; i++) {
      uint32_t v = i;
      for (int bit = 0; bit < 8; bit++) v = v & 1 ? v >> 1 ^ 0x82F63B78u : v >> 1;
      table[i] = v;
    }
  }
  uint32_t crc = 0xFFFFFFFFu;
  for (size_t i = 0; i < size; i++) crc = crc >> 8 ^ table[(crc ^ ((const uint8_t *)bytes)[i]) & 255];
  return ~crc;
}

/* A checksum of data that contains checksums would be weak: the format rotates it and adds a constant. */
static uint32_t masked(uint32_t crc) { return (crc >> 15 | crc << 17) + 0xA282EAD8u; }

static void put_little(FILE *out, uint64_t value, int n_bytes) {
  for (int i = 0; i < n_bytes; i++) fputc((int)(value >> 8 * i & 255), out);
}

enum { EVENT_MOST = 256 };
typedef struct message {
  uint8_t bytes[EVENT_MOST];
  size_t n;
} message;

static void add_varint(message *m, uint64_t value) {
  for (; value >= 128; value >>= 7) m->bytes[m->n++] = (uint8_t)(value | 128);
  m->bytes[m->n++] = (uint8_t)value;
}

enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };
static void add_key(message *m, int field, int wire) { add_varint(m, (uint64_t)(field << 3 | wire)); }

static void add_bytes(message *m, int field, const void *bytes, size_t n) {
  add_key(m, field, WIRE_BYTES);
  add_varint(m, n);
  memcpy(m->bytes + m->n, bytes, n);
  m->n += n;
}

static void add_fixed(message *m, int field, int wire, uint64_t bits) {
  add_key(m, field, wire);
  for (int i = 0; i < (wire == WIRE_64 ? 8 : 4); i++) m->bytes[m->n++] = (uint8_t)(bits >> 8 * i);
}

static void add_time(message *m, double seconds) {
  uint64_t bits;
  memcpy(&bits, &seconds, sizeof bits);
  add_fixed(m, 1, WIRE_64, bits);
}

static void put_record(FILE *out, const message *m) {
  uint8_t length[8];
  for (int i = 0; i < 8; i++) length[i] = (uint8_t)((uint64_t)m->n >> 8 * i);
  fwrite(length, 1, sizeof length, out);
  put_little(out, masked(event_file_crc(length, sizeof length)), 4);
  fwrite(m->bytes, 1, m->n, out);
  put_little(out, masked(event_file_crc(m->bytes, m->n)), 4);
}

static void put_scalar(FILE *out, double seconds, long step, const char *tag, double number) {
  message event = {0}, summary = {0}, value = {0};
  const float simple = (float)number;
  uint32_t bits;
  if (!(fabs(number) <= (double)FLT_MAX)) return; /* not a number, or not in float32's range */
  memcpy(&bits, &simple, sizeof bits);
  add_bytes(&value, 1, tag, strlen(tag));
  add_fixed(&value, 2, WIRE_32, bits);
  add_bytes(&summary, 1, value.bytes, value.n);
  add_time(&event, seconds);
  add_key(&event, 2, WIRE_VARINT);
  add_varint(&event, (uint64_t)step);
  add_bytes(&event, 5, summary.bytes, summary.n);
  put_record(out, &event);
}

static void put_run(FILE *out, const run_log *run) {
  static const char version[] = "brain.Event:2";
  message first = {0};
  double seconds = 0;
  size_t e = 0;
  add_time(&first, 0);
  add_bytes(&first, 3, version, sizeof version - 1);
  put_record(out, &first);
  for (size_t i = 0; i < run->n_steps; i++) {
    const log_step *const s = &run->steps[i];
    if (isfinite(s->ms)) seconds += 1e-3 * s->ms;
    put_scalar(out, seconds, s->step, "loss", s->loss);
    put_scalar(out, seconds, s->step, "lr", s->lr);
    put_scalar(out, seconds, s->step, "grad_norm", s->grad_norm);
    if (i + 1 < run->n_steps && run->steps[i + 1].epoch == s->epoch) continue;
    while (e < run->n_epochs && run->epochs[e].epoch < s->epoch) e++;
    if (e >= run->n_epochs || run->epochs[e].epoch != s->epoch) continue;
    put_scalar(out, seconds, s->step, "epoch/train_loss", run->epochs[e].train_loss);
    put_scalar(out, seconds, s->step, "epoch/train_acc", run->epochs[e].train_acc);
    put_scalar(out, seconds, s->step, "epoch/val_acc", run->epochs[e].val_acc);
    put_scalar(out, seconds, s->step, "epoch/test_acc", run->epochs[e].test_acc);
  }
}

bool event_file_write(const char *folder, const char *name, const run_log *run) {
  char *path = NULL, *bytes = NULL;
  size_t size = 0;
  bool ok = false;
  if (asprintf(&path, "%s/%s/events.out.tfevents.0.convoy", folder, name) < 0) path = NULL;
  FILE *const out = path ? open_memstream(&bytes, &size) : NULL;
  if (out) {
    put_run(out, run);
    ok = fclose(out) == 0;
  }
  if (!ok) program_say("error: --tensorboard %s: out of memory", folder);
  else {
    char *const slash = strrchr(path, '/');
    *slash = '\0';
    ok = cvy_make_dirs(path, NULL) == CVY_OK;
    *slash = '/';
    ok = ok && cvy_file_put(path, &(cvy_piece){bytes, size}, 1) == CVY_OK;
  }
  free(bytes);
  free(path);
  return ok;
}
