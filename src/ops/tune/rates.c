/* SPDX-License-Identifier: MIT */
#include "src/ops/tune/rates.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "src/base/clock.h"
#include "src/base/env.h"
#include "src/base/sync.h"
#include "src/base/text.h"
#include "src/base/user_cache.h"
#include "src/cl/launch.h"
#include "src/ops/stream.h"

/* Of a card that is not known, for one compute unit: an RX 6800's unit makes 135e9 multiply-adds a second, an RTX
 * 3060's 228e9. FMA_PER_BYTE multiply-adds in the time of a byte: V100 8.7, A100 6.3, H100 10, MI210 7, RX 6800 16. */
static const double UNIT_FMA_PER_S = 150e9, FMA_PER_BYTE = 10, LAUNCH_S = 4e-6;

enum {
  LONGEST_FILE = 4096,
  CHAINS = 12, /* of bench_fma */
  FMA_ROUNDS = 2048,
  GROUPS_PER_UNIT = 8,
  COPY_BYTES = 64 << 20,
  EMPTY_LAUNCHES = 64,
  REPEATS = 4, /* the first one warms up; of the others the shortest counts */
  MOST_KEPT = 16
};

/* ---- measuring ---- */

typedef struct probe {
  cvy_queue *queue;
  cvy_kernel *fma, *copy, *none;
  cvy_buffer *out, *x, *y;
  size_t fma_items, n_vec;
} probe;

static cvy_status open_probe(probe *p, cvy_device *device) {
  cvy_status status = CVY_OK;
  const size_t most = cvy_device_get_info(device)->global_bytes / 16, bytes = most < COPY_BYTES ? most : COPY_BYTES;
  static const cvy_define width = {"WIDTH", 1}; /* as convoy bench: one program */
  p->queue = cvy_device_compute_queue(device);
  p->fma_items = (size_t)cvy_device_get_capabilities(device)->compute_units * GROUPS_PER_UNIT * CVY_STREAM_LOCAL;
  p->n_vec = bytes / 4 / sizeof(float) / CVY_STREAM_LOCAL * CVY_STREAM_LOCAL;
  CVY_TRY(cvy_kernel_create(device, "bench", "bench_fma", &width, 1, &p->fma));
  CVY_TRY(cvy_kernel_create(device, "bench", "bench_copy", &width, 1, &p->copy));
  CVY_TRY(cvy_kernel_create(device, "bench", "bench_none", &width, 1, &p->none));
  CVY_TRY(cvy_buffer_create(device, p->fma_items * sizeof(float), &p->out));
  CVY_TRY(cvy_buffer_create(device, p->n_vec * 4 * sizeof(float), &p->x));
  CVY_TRY(cvy_buffer_create(device, p->n_vec * 4 * sizeof(float), &p->y));
  CVY_TRY(cvy_buffer_fill(p->queue, p->x, 0, p->n_vec * 4 * sizeof(float), 0));
fail:
  return status;
}

static void close_probe(probe *p) {
  cvy_kernel_destroy(&p->fma);
  cvy_kernel_destroy(&p->copy);
  cvy_kernel_destroy(&p->none);
  cvy_buffer_destroy(&p->out);
  cvy_buffer_destroy(&p->x);
  cvy_buffer_destroy(&p->y);
}

static cvy_grid grid_of(size_t items) { return (cvy_grid){.global = {items, 1, 1}, .local = {CVY_STREAM_LOCAL, 1, 1}}; }

/* which: 0 multiply-adds, 1 a copy, 2 empty launches. */
static cvy_status run_probe(probe *p, int which) {
  cvy_status status = CVY_OK;
  if (which == 0)
    return CVY_LAUNCH(p->queue, p->fma, grid_of(p->fma_items), CVY_BUF(p->out), CVY_FLOAT(0.999f), CVY_FLOAT(1e-3f),
                      CVY_INT(FMA_ROUNDS));
  if (which == 1)
    return CVY_LAUNCH(p->queue, p->copy, grid_of(p->n_vec), CVY_BUF(p->x), CVY_BUF(p->y), CVY_UINT((uint32_t)p->n_vec),
                      CVY_UINT(1));
  for (int i = 0; i < EMPTY_LAUNCHES; i++)
    CVY_TRY(CVY_LAUNCH(p->queue, p->none, grid_of(CVY_STREAM_LOCAL), CVY_BUF(p->out)));
fail:
  return status;
}

cvy_status cvy_rates_measure(cvy_device *device, cvy_device_rates *out) {
  cvy_status status = CVY_OK;
  probe p = {0};
  double best[3] = {0};
  CVY_TRY(open_probe(&p, device));
  for (int which = 0; which < 3; which++)
    for (int i = 0; i < REPEATS; i++) {
      CVY_TRY(cvy_queue_finish(p.queue));
      const uint64_t start = cvy_clock_ns();
      CVY_TRY(run_probe(&p, which));
      CVY_TRY(cvy_queue_finish(p.queue));
      const double seconds = cvy_clock_seconds_since(start);
      if (i == 1 || (i > 1 && seconds < best[which])) best[which] = seconds;
    }
  /* the first two hold the time of a launch and of the wait for it as well */
  const double launch = best[2] / EMPTY_LAUNCHES, least = 1e-9;
  for (int which = 0; which < 2; which++) best[which] = best[which] > 2 * launch ? best[which] - launch : best[which];
  *out = (cvy_device_rates){.fma_per_s = (double)CHAINS * FMA_ROUNDS * (double)p.fma_items / (best[0] + least),
                            .bytes_per_s = 2.0 * 4 * sizeof(float) * (double)p.n_vec / (best[1] + least),
                            .launch_s = launch + least};
fail:
  close_probe(&p);
  return status;
}

/* ---- keeping ---- */

static void add_line(cvy_text *text, const char *key, const char *value) {
  cvy_text_add(text, "%s: ", key);
  for (; *value; value++) cvy_text_add(text, "%c", *value == '\n' ? ' ' : *value);
  cvy_text_add(text, "\n");
}

/* The file's lines in front of the rates. */
static cvy_status make_head(cvy_device *device, cvy_text *head) {
  cvy_status status = CVY_OK;
  const cvy_device_info *const info = cvy_device_get_info(device);
  cvy_text_add(head, "convoy-rates 1\n");
  add_line(head, "device", info->name);
  add_line(head, "platform", info->platform_name);
  add_line(head, "driver", info->driver);
  cvy_text_add(head, "units: %d\n", cvy_device_get_capabilities(device)->compute_units);
  CVY_REQUIRE(!head->failed, CVY_E_MEMORY, "out of host memory");
fail:
  return status;
}

/* As they are in a file: three digits. False: the text is none. */
static bool read_rates(const char *text, cvy_device_rates *out) {
  char numbers[3][24], end;
  double values[3];
  if (sscanf(text, "%23s %23s %23s %c", numbers[0], numbers[1], numbers[2], &end) != 3) return false;
  for (int i = 0; i < 3; i++)
    if (!cvy_parse_float(numbers[i], 1e-12, 1e18, &values[i])) return false;
  *out = (cvy_device_rates){values[0], values[1], values[2]};
  return true;
}

static bool load(const char *path, const cvy_text *head, cvy_device_rates *out) {
  char *data = NULL;
  size_t size = 0;
  const bool there = cvy_user_cache_read(path, LONGEST_FILE, &data, &size) == CVY_OK && data;
  const bool good = there && size > head->size && !memcmp(data, head->data, head->size) && data[size - 1] == '\n' &&
                    read_rates(data + head->size, out);
  cvy_free(data);
  return good;
}

/* The rates that this process has found, by their file. No call on a device is made with the lock. */
static struct {
  cvy_mutex lock;
  int n;
  uint64_t keys[MOST_KEPT];
  cvy_device_rates rates[MOST_KEPT];
} kept = {.lock = {.posix = PTHREAD_MUTEX_INITIALIZER}};

/* True: there are some already, which are given. Else *rates are kept, unless they are all zero. */
static bool find_or_keep(uint64_t key, cvy_device_rates *rates) {
  bool found = false;
  cvy_mutex_lock(&kept.lock);
  for (int i = 0; i < kept.n && !found; i++)
    if (kept.keys[i] == key) *rates = kept.rates[i], found = true;
  if (!found && rates->fma_per_s > 0 && kept.n < MOST_KEPT) kept.keys[kept.n] = key, kept.rates[kept.n++] = *rates;
  cvy_mutex_unlock(&kept.lock);
  return found;
}

cvy_status cvy_rates_kept(cvy_device *device, const char *path, cvy_device_rates *out) {
  cvy_status status = CVY_OK;
  cvy_text text = {0};
  char line[96];
  const uint64_t key = XXH3_64bits(path, strlen(path));
  *out = (cvy_device_rates){0};
  if (find_or_keep(key, out)) return CVY_OK;
  CVY_TRY(make_head(device, &text));
  if (!load(path, &text, out)) {
    CVY_TRY(cvy_rates_measure(device, out));
    snprintf(line, sizeof line, "%.3e %.3e %.3e\n", out->fma_per_s, out->bytes_per_s, out->launch_s);
    CVY_REQUIRE(read_rates(line, out), CVY_E_DEVICE, "%s: its rates cannot be: %s", cvy_device_label(device), line);
    cvy_text_add(&text, "%s", line);
    CVY_REQUIRE(!text.failed, CVY_E_MEMORY, "out of host memory");
    CVY_TRY(cvy_user_cache_write(path, &(cvy_piece){text.data, text.size}, 1));
  }
  (void)find_or_keep(key, out);
fail:
  cvy_text_clear(&text);
  return status;
}

/* The path of the device's file; false: there is no place for it. */
static bool find_path(cvy_device *device, char *out, size_t out_bytes) {
  char folder[PATH_MAX];
  cvy_text head = {0};
  const bool there = !cvy_env_on(CVY_ENV_NO_TUNE) && cvy_user_cache_dir(NULL, folder, sizeof folder) &&
                     make_head(device, &head) == CVY_OK;
  const int n = !there ? 0
                       : snprintf(out, out_bytes, "%s/rates-%016" PRIx64 ".txt", folder,
                                  (uint64_t)XXH3_64bits(head.data, head.size));
  cvy_text_clear(&head);
  return n > 0 && (size_t)n < out_bytes;
}

cvy_device_rates cvy_rates_of(cvy_device *device) {
  char path[PATH_MAX];
  cvy_device_rates *const rates = cvy_device_get_rates(device);
  if (rates->fma_per_s > 0) return *rates;
  const cvy_capabilities *const capabilities = cvy_device_get_capabilities(device);
  cvy_status status = CVY_E_UNSUPPORTED;
  if (!capabilities->cpu_shaped && cvy_device_get_info(device)->kind == CVY_DEVICE_GPU &&
      find_path(device, path, sizeof path)) {
    cvy_log_attempt_begin();
    status = cvy_rates_kept(device, path, rates);
    cvy_log_attempt_end(false);
  }
  if (status != CVY_OK) {
    const double fma_per_s = UNIT_FMA_PER_S * capabilities->compute_units;
    *rates = (cvy_device_rates){fma_per_s, fma_per_s / FMA_PER_BYTE, LAUNCH_S};
  }
  return *rates;
}
