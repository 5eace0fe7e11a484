/* SPDX-License-Identifier: MIT
 * run/checkpoint.h, and what a run that goes on does with the texts in a checkpoint. Input, one of:
 *   '{' …: the header's text, a zero byte, the data; the header's length is put in front
 *   a byte that says which tensors there are, then the values of the metadata with zero bytes between them
 * The checksum is set right, in the first where the header has its place. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "src/base/mem.h"
#include "src/base/safetensors.h"
#include "src/nn/choices.h"
#include "src/nn/graph.h"
#include "src/run/checkpoint.h"
#include "src/team/noted_devices.h"
#include "tests/fuzz/fuzz.h"

enum { VARIANTS = 4, KEYS = 15, MODEL_INFO = KEYS - 1 };
static const char settings[] = "{\"model\":\"tiny\",\"lr\":0.1,\"epochs\":3}",
                  name[] = "run/step-0000000007.safetensors";
static const char *const keys[KEYS] = {
    "convoy_checkpoint", "program",  "step",    "epoch",  "epoch_batches", "n_batches", "seed",  "epoch_loss_sum",
    "epoch_images",      "finished", "devices", "shares", "settings",      "choices",   "convoy"};
static const char model_info_text[] =
    "{\"class_names\":[\"a\",\"b\"],\"classes\":2,\"input\":[1,3,3],\"model\":\"lenet\"}";

static cvy_net *net;
static cvy_st_file *variants[VARIANTS]; /* checkpoints without and with optimiser state, older weights, residuals */
static char run_folder[PATH_MAX], path[PATH_MAX + sizeof name];

static void start(void) {
  static const int shares[] = {5, 3};
  static float values[1024];
  float *residuals[] = {NULL, values};
  if (net) return;
  FUZZ_OK(cvy_net_create(1, 3, 3, &net));
  cvy_node x = cvy_net_conv2d(net, cvy_net_input(net), "0", &(cvy_conv2d_spec){.filters = 2, .kernel = {3, 3}});
  x = cvy_net_batchnorm(net, x, "1", NULL);
  FUZZ_OK(cvy_net_finish(net, cvy_net_linear(net, x, "fc", 2, false)));
  snprintf(run_folder, sizeof run_folder, "%s/run", fuzz_folder());
  snprintf(path, sizeof path, "%s/%s", fuzz_folder(), name);
  for (int i = 0; i < VARIANTS; i++) {
    const cvy_checkpoint_data data = {.at = {.step = 7, .epoch = 1, .epoch_batches = 3, .epoch_images = 24},
                                      .settings = settings,
                                      .devices = "[{\"label\":\"0:0 A\",\"units\":4,\"driver\":\"1\"},\"0:1 A\"]",
                                      .n_shares = 2,
                                      .shares = shares,
                                      .choices = "[{\"0\":[\"winograd4:14,2\",null,\"direct\"]},{}]",
                                      .w = values,
                                      .running = values,
                                      .model_info = i & 1 ? model_info_text : NULL,
                                      .kind = i == 3 ? CVY_OPTIMIZER_ADAM : CVY_OPTIMIZER_SGD,
                                      .moments = {i & 1 ? values : NULL, i == 3 ? values : NULL},
                                      .w_previous = i & 2 ? values : NULL,
                                      .residuals = i == 3 ? residuals : NULL};
    FUZZ_OK(cvy_checkpoint_write(run_folder, cvy_net_layout(net), &data, 1));
    FUZZ_OK(cvy_st_open(path, &variants[i]));
  }
  fuzz_keep();
}

void fuzz_seeds(void) {
  start();
  for (uint8_t i = 0; i < VARIANTS; i++) {
    char texts[4096] = {(char)i};
    size_t n = 1;
    for (int k = 0; k < KEYS; k++) {
      const char *const value = cvy_st_metadata(variants[i], keys[k]);
      n += (size_t)sprintf(texts + n, "%s", value ? value : "") + 1;
    }
    fuzz_seed(texts, n - 1, NULL, 0);
  }
  size_t size;
  uint64_t length;
  uint8_t *const file = fuzz_read(path, &size);
  memcpy(&length, file, 8);
  memmove(file, file + 8, length);
  file[length] = 0;
  fuzz_seed(file, length + 1, file + length + 8, size - length - 8);
  free(file);
}

/* As run/checkpoint.h says. False: a key is missing, or it is no safetensors file. */
static bool checksum_of(const char *const values[KEYS], const cvy_st_file *file, char out[17]) {
  XXH64_state_t *const state = XXH64_createState();
  bool all = true;
  CVY_ASSERT(state);
  XXH64_reset(state, 0);
  for (int i = 0; i < KEYS && all; i++) {
    all = values[i] || i == MODEL_INFO; /* which may be missing */
    if (!values[i]) break;
    XXH64_update(state, keys[i], strlen(keys[i]) + 1);
    XXH64_update(state, values[i], strlen(values[i]) + 1);
  }
  for (int i = 0; i < cvy_st_count(file); i++) {
    const cvy_st_tensor *const t = cvy_st_get(file, i);
    XXH64_update(state, t->name, strlen(t->name) + 1);
    XXH64_update(state, t->data, t->size_bytes);
  }
  snprintf(out, 17, "%016" PRIx64, (uint64_t)XXH64_digest(state));
  XXH64_freeState(state);
  return all;
}

static void make_from_header(const uint8_t *data, size_t size) {
  static const char place[] = "\"xxh64\":\"";
  const uint8_t *const end = memchr(data, 0, size);
  const uint64_t length = end ? (uint64_t)(end - data) : size;
  const size_t rest = size - length - (end != NULL);
  const char *values[KEYS];
  char *const head = malloc(8 + length + 1), digits[17];
  CVY_ASSERT(head);
  memcpy(head, &length, 8);
  memcpy(head + 8, data, length);
  head[8 + length] = 0;
  fuzz_file(name, head, 8 + length, end ? end + 1 : NULL, rest);
  char *const at = strstr(head + 8, place);
  cvy_st_file *file;
  if (at && strlen(at) >= sizeof place - 1 + 16 && cvy_st_open(path, &file) == CVY_OK) {
    for (int i = 0; i < KEYS; i++) values[i] = cvy_st_metadata(file, keys[i]);
    if (checksum_of(values, file, digits)) memcpy(at + sizeof place - 1, digits, 16);
    cvy_st_close(&file);
    fuzz_file(name, head, 8 + length, end ? end + 1 : NULL, rest);
  }
  free(head);
}

/* False: a value is not UTF-8, which no writer would accept. */
static bool make_from_values(const uint8_t *data, size_t size) {
  const cvy_st_file *const like = variants[data[0] % VARIANTS];
  const char *values[KEYS], *pairs[KEYS + 1][2];
  char *const texts = malloc(size), digits[17];
  CVY_ASSERT(texts);
  memcpy(texts, data + 1, size - 1);
  texts[size - 1] = 0;
  const char *at = texts, *const end = texts + size;
  for (int i = 0; i < KEYS; i++) {
    values[i] = at < end ? at : "";
    if (at < end) at += strlen(at) + 1;
    pairs[i][0] = keys[i];
    pairs[i][1] = values[i];
  }
  const int n = *values[MODEL_INFO] ? KEYS : MODEL_INFO; /* no text: without the model's metadata */
  if (n == MODEL_INFO) values[MODEL_INFO] = NULL;
  (void)checksum_of(values, like, digits);
  pairs[n][0] = "xxh64";
  pairs[n][1] = digits;
  const bool made =
      cvy_st_write(path, cvy_st_get(like, 0), cvy_st_count(like), (const char *const(*)[2])pairs, n + 1) == CVY_OK;
  free(texts);
  return made;
}

/* The texts, as a team of two devices looks at them. */
static void look_at(const cvy_checkpoint *opened) {
  static cvy_device_info item = {.name = "A", .driver = "1", .compute_units = 4};
  static cvy_device_list list = {.n = 1, .items = &item};
  static cvy_selected_device selected[2] = {{.label = "0:0 A"}, {.label = "0:1 A"}};
  static const cvy_devices devices = {.list = &list, .selected = selected, .n = 2};
  const cvy_resume_values resume_values = cvy_checkpoint_resume_values(opened);
  int rows[2];
  bool same;
  FUZZ_OK(cvy_noted_rows(resume_values.devices, &devices, rows));
  FUZZ_OK(cvy_noted_same(resume_values.devices, &devices, &same));
  (void)cvy_noted_makes(resume_values.devices);
  cvy_conv_choices *const table = calloc(2 * (size_t)net->n_layers, sizeof *table);
  CVY_ASSERT(table);
  FUZZ_OK(cvy_choices_read(resume_values.choices, net, 2, rows, table));
  (void)cvy_choices_compare(resume_values.choices, "[{\"0\":[\"winograd4:14,2\",null,\"direct\"]},{}]");
  free(table);
  char *extended;
  FUZZ_OK(cvy_settings_extend(cvy_checkpoint_settings(opened), 1,
                              &(cvy_run_position){.kept_step = 2, .kept_median = 0.5}, &extended));
  cvy_free(extended);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  cvy_checkpoint *opened;
  cvy_checkpoint_data read;
  start();
  if (size == 0) return 0;
  if (data[0] == '{') make_from_header(data, size);
  else if (!make_from_values(data, size)) return 0;
  if (cvy_checkpoint_open(run_folder, &opened) == CVY_OK) {
    CVY_ASSERT(opened);
    look_at(opened);
    const char *const now = size % 2 ? settings : NULL;
    const bool may = cvy_checkpoint_read(opened, cvy_net_layout(net), now, NULL, &read) == CVY_OK;
    CVY_ASSERT(!may || (read.w && read.running));
    cvy_checkpoint_clear(&read);
    cvy_checkpoint_close(&opened);
  }
  fuzz_end();
  return 0;
}
