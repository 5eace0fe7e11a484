/* SPDX-License-Identifier: MIT
 * A model's metadata in a file's header, nn/model_info.h. Input: the text. What is read is written and read again as
 * the same. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/mem.h"
#include "src/nn/model_info.h"
#include "tests/fuzz/fuzz.h"

void fuzz_seeds(void) {
  static const char *const texts[] = {
      "{\"classes\":2,\"class_names\":[\"a\",\"\\u00e4\"],\"input\":[1,3,3],\"model\":\"lenet\"}",
      "{\"classes\":10,\"deviation\":[0.2,0.3,1],\"gray\":false,\"input\":[3,32,32],\"mean\":[0.5,0,1e-3],"
      "\"model\":\"resnet18\",\"size\":[-1,32]}",
      "{\"classes\":65535,\"gray\":true,\"input\":[1,1,1],\"size\":[0,0],\"more\":[{}]}"};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) fuzz_seed(texts[i], strlen(texts[i]), NULL, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  cvy_model_info *info, *again;
  char *text, *second;
  char *const input = malloc(size + 1);
  CVY_ASSERT(input);
  if (size) memcpy(input, data, size);
  input[size] = '\0';
  const cvy_status status = cvy_model_info_parse("file", input, &info);
  free(input);
  CVY_ASSERT(status == CVY_OK || status == CVY_E_FORMAT);
  if (status == CVY_OK) {
    CVY_ASSERT(info->classes >= 1 && info->channels >= 1 && info->height >= 1 && info->width >= 1);
    for (int c = 0; c < info->n_channels; c++)
      CVY_ASSERT(isfinite(info->mean[c]) && isfinite(info->deviation[c]) && info->deviation[c] > 0);
    FUZZ_OK(cvy_model_info_write(info, &text));
    FUZZ_OK(cvy_model_info_parse("again", text, &again));
    FUZZ_OK(cvy_model_info_write(again, &second));
    CVY_ASSERT(strcmp(text, second) == 0);
    cvy_free(text);
    cvy_free(second);
    cvy_model_info_free(&again);
  }
  cvy_model_info_free(&info);
  fuzz_end();
  return 0;
}
