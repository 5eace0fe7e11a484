/* SPDX-License-Identifier: MIT
 * Words for algorithms, passes and choices, for users, logs and checkpoints. */
#include "src/ops/conv2d/conv2d_params.h"

#include <stdio.h>
#include <string.h>

#include "src/base/text.h"

static const char *const algo_names[CVY_CONV_ALGOS] = {"auto",      "direct",          "winograd2", "winograd2_fused",
                                                       "winograd4", "winograd4_fused", "gemm",      "fft"};
static const char *const pass_names[CVY_CONV_PASSES] = {"forward", "backward_data", "backward_weights"};

const char *cvy_conv_algo_name(cvy_conv_algo algo) { return algo_names[algo]; }
const char *cvy_conv_pass_name(cvy_conv_pass pass) { return pass_names[pass]; }

/* The algorithm with this name of `length` bytes; CVY_CONV_ALGOS: there is none. AUTO is none. */
static cvy_conv_algo find_name(const char *name, size_t length) {
  int algo = CVY_CONV_DIRECT;
  while (algo < CVY_CONV_ALGOS && (strlen(algo_names[algo]) != length || memcmp(name, algo_names[algo], length) != 0))
    algo++;
  return (cvy_conv_algo)algo;
}

const char *cvy_conv_algos_read(const char *text, cvy_conv_algo_list *out) {
  cvy_conv_algo_list list = {0};
  if (strcmp(text, algo_names[CVY_CONV_AUTO]) != 0) {
    for (const char *at = text;; at++) {
      const size_t length = strcspn(at, ",");
      const cvy_conv_algo algo = find_name(at, length);
      if (algo == CVY_CONV_ALGOS)
        return "expected auto, or a list of direct, winograd2, winograd2_fused, winograd4, winograd4_fused, gemm, fft, "
               "separated by commas";
      for (int i = 0; i < list.n; i++)
        if (list.algo[i] == algo) return "an algorithm is given twice";
      list.algo[list.n++] = algo;
      at += length;
      if (!*at) break;
    }
  }
  *out = list;
  return NULL;
}

cvy_status cvy_conv_algos_parse(const char *text, cvy_conv_algo_list *out) {
  cvy_status status = CVY_OK;
  CVY_REQUIRE(text && out, CVY_E_ARGUMENT, "convolution algorithms: a text is a null pointer");
  const char *const wrong = cvy_conv_algos_read(text, out);
  CVY_REQUIRE(!wrong, CVY_E_ARGUMENT, "convolution algorithm '%.60s': %s", text, wrong);
fail:
  return status;
}

const char *cvy_conv_choice_text(const cvy_conv_choice *choice, char *out, size_t out_bytes) {
  int n = CVY_CONV_TILES;
  while (n > 0 && choice->tile[n - 1] == 0) n--;
  size_t used = (size_t)snprintf(out, out_bytes, "%s", algo_names[choice->algo]);
  for (int i = 0; i < n && used < out_bytes; i++)
    used += (size_t)snprintf(out + used, out_bytes - used, "%c%d", i ? ',' : ':', choice->tile[i]);
  return out;
}

bool cvy_conv_choice_parse(const char *text, cvy_conv_choice *out) {
  cvy_conv_choice choice = {0};
  const size_t length = strcspn(text, ":");
  choice.algo = find_name(text, length);
  if (choice.algo == CVY_CONV_ALGOS) return false;
  const char *at = text + length;
  for (int i = 0; *at; i++) {
    char number[16] = "";
    int64_t value;
    const size_t digits = strcspn(++at, ",");
    if (i == CVY_CONV_TILES || digits == 0 || digits >= sizeof number) return false;
    memcpy(number, at, digits);
    if (!cvy_parse_int(number, 0, INT32_MAX, &value)) return false;
    choice.tile[i] = (int)value;
    at += digits;
  }
  *out = choice;
  return true;
}

bool cvy_conv_choice_same(const cvy_conv_choice *a, const cvy_conv_choice *b) {
  return a->algo == b->algo && memcmp(a->tile, b->tile, sizeof a->tile) == 0;
}
