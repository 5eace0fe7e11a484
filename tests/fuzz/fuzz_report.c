/* SPDX-License-Identifier: MIT
 * The page, the CSV and the event files that `convoy report` makes of a log. Input: the log. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/text.h"
#include "tests/fuzz/fuzz.h"
#include "tools/program/program_common.h"

/* Numbers that a search hardly finds: the ends of what a double, a float and a step's number have. */
static const char *const numbers[] = {"-1.7e308", "1.7976931348623157e308", "5e-324", "3.4e38", "1e-9", "0",
                                      "-0.0",     "4611686018427387903",    "1e12",   "1e-300"};

void fuzz_seeds(void) {
  static const char *const texts[] = {
      "{\"run\":{\"version\":\"0\",\"devices\":[\"0:0 x\"],\"settings\":{\"lr\":0.1,\"model\":\"lenet\",\"data\":\"d\","
      "\"options\":{\"lr\":\"0.1\",\"data\":\"it's\"}}}}\n",
      "{\"epoch\":0,\"train_loss\":0.5,\"train_acc\":0.25,\"test_acc\":null,\"val_acc\":1,\"sec\":1.0,\"best\":true}\n",
      "{\"device_lost\":{\"label\":\"0:0\",\"step\":3,\"reason\":\"why\"}}\n",
      "{\"end\":{\"interrupted\":true,\"sec_per_epoch\":2,\"times\":{\"devices\":[{\"computing_ms\":1e308,"
      "\"exchanging_ms\":1e308,\"waiting_ms\":1,\"idle_ms\":-1}]}}}\n",
      "{\"error\":{\"message\":\"why\"}}\n"};
  char all[1 << 13] = "";
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) strcat(all, texts[i]);
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++) {
      char steps[1024];
      const int n = snprintf(steps, sizeof steps,
                             "{\"epoch\":0,\"step\":0,\"loss\":%s,\"lr\":%s,\"images\":64,\"shares\":[64],\"ms\":%s}\n"
                             "{\"epoch\":0,\"step\":%s,\"loss\":%s,\"lr\":%s,\"grad_norm\":%s,\"ms\":2}\n",
                             numbers[i], numbers[k], numbers[k], numbers[i], numbers[k], numbers[i], numbers[k]);
      fuzz_seed(steps, (size_t)n, i == k ? all : "", i == k ? strlen(all) : 0);
    }
}

/* What is written is whole, plain text, and not much larger than what a page of such a log has. */
static void look(const char *path, size_t input_bytes, const char *end) {
  size_t size;
  char *const text = (char *)fuzz_read(path, &size);
  const size_t n = strlen(end);
  CVY_ASSERT(size >= n && memcmp(text + size - n, end, n) == 0);
  CVY_ASSERT(size < (64 << 10) + 64 * input_bytes);
  text[size] = 0;
  CVY_ASSERT(strlen(text) == size);
  for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) CVY_ASSERT(cvy_is_plain(line));
  free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char log[256], page[256], table[256], events[256];
  snprintf(log, sizeof log, "%s", fuzz_file("log", data, size, NULL, 0));
  snprintf(page, sizeof page, "%s/page.html", fuzz_folder());
  snprintf(table, sizeof table, "%s/table.csv", fuzz_folder());
  snprintf(events, sizeof events, "%s/events", fuzz_folder());
  char *words[] = {"report", log, "--out", page, "--csv", table, "--tensorboard", events, NULL};
  const int code = cmd_report((int)(sizeof words / sizeof *words) - 1, words);
  CVY_ASSERT(code == EXIT_DONE || code == EXIT_FAILED);
  if (code == EXIT_DONE) {
    look(page, size, "</body></html>\n");
    look(table, size, "\n");
  }
  fuzz_end();
  return 0;
}
