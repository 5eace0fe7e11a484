/* SPDX-License-Identifier: MIT
 * A log as reports read it, tools/program/log/run_log.h. Input: the file. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"
#include "tools/program/log/run_log.h"

void fuzz_seeds(void) {
  static const char *const texts[] = {
      "{\"run\":{\"version\":\"0\",\"devices\":[\"0:0 x\"],\"settings\":{\"lr\":0.1,\"model\":\"lenet\"}}}\n",
      "{\"epoch\":0,\"step\":7,\"loss\":1.5,\"lr\":0.1,\"images\":64,\"correct\":32,\"shares\":[64],\"ms\":2.5}\n",
      "{\"epoch\":0,\"train_loss\":0.5,\"train_acc\":0.25,\"test_acc\":null,\"val_acc\":1,\"sec\":1.0,\"best\":true}\n",
      "{\"device_lost\":{\"label\":\"0:0\",\"step\":3,\"reason\":\"why\"}}\n{\"node_lost\":{}}\n{\"balance\":[]}\n",
      "{\"start\":{}}\n{\"end\":{\"interrupted\":true,\"times\":{\"devices\":[{\"idle_ms\":1}]}}}\n",
      "{\"error\":{\"message\":\"why\"}}\nnot json\n\n{\"step\":-1}"};
  char all[1 << 12] = "";
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    fuzz_seed(texts[i], strlen(texts[i]), NULL, 0);
    strcat(all, texts[i]);
  }
  fuzz_seed(all, strlen(all), all, strlen(all));
}

static bool is_part(double value) { return isnan(value) || (value >= 0 && value <= 1); }

/* Steps and epochs rise, whatever the file says, and no value misleads a chart. */
static void look(const run_log *log) {
  char room[64];
  for (size_t i = 0; i < log->n_steps; i++) {
    const log_step *const s = &log->steps[i];
    CVY_ASSERT(s->step >= 0 && s->epoch >= 0 && (i == 0 || s->step > log->steps[i - 1].step));
    CVY_ASSERT(s->images >= -1 && s->correct >= -1 && !isinf(s->loss) && !isinf(s->lr) && !isinf(s->ms));
  }
  for (size_t i = 0; i < log->n_epochs; i++) {
    const log_epoch *const e = &log->epochs[i];
    CVY_ASSERT(e->epoch >= 0 && (i == 0 || e->epoch > log->epochs[i - 1].epoch));
    CVY_ASSERT(is_part(e->train_acc) && is_part(e->val_acc) && is_part(e->test_acc));
  }
  const char *const text = run_log_setting(log, "lr", room, sizeof room);
  CVY_ASSERT(strlen(text) < SIZE_MAX);
}

/* The file gives what its bytes give. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  run_log read, loaded;
  CVY_ASSERT(run_log_open("a", &read) && run_log_open("b", &loaded));
  run_log_read(&read, (const char *)data, size);
  FUZZ_OK(run_log_load(&loaded, fuzz_file("log", data, size, NULL, 0)));
  CVY_ASSERT(read.n_steps == loaded.n_steps && read.n_epochs == loaded.n_epochs && read.n_parts == loaded.n_parts);
  look(&read);
  look(&loaded);
  run_log_close(&read);
  run_log_close(&loaded);
  fuzz_end();
  return 0;
}
