/* SPDX-License-Identifier: MIT
 * The facts of a model in a file's header, nn/model_facts.h. Input: the text. What is read is written and read again as
 * the same. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/mem.h"
#include "src/nn/model_facts.h"
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
  cvy_model_facts *facts, *again;
  char *text, *second;
  char *const input = malloc(size + 1);
  CVY_ASSERT(input);
  if (size) memcpy(input, data, size);
  input[size] = '\0';
  const cvy_status status = cvy_facts_parse("file", input, &facts);
  free(input);
  CVY_ASSERT(status == CVY_OK || status == CVY_E_FORMAT);
  if (status == CVY_OK) {
    CVY_ASSERT(facts->classes >= 1 && facts->channels >= 1 && facts->height >= 1 && facts->width >= 1);
    for (int c = 0; c < facts->n_channels; c++)
      CVY_ASSERT(isfinite(facts->mean[c]) && isfinite(facts->deviation[c]) && facts->deviation[c] > 0);
    FUZZ_OK(cvy_facts_write(facts, &text));
    FUZZ_OK(cvy_facts_parse("again", text, &again));
    FUZZ_OK(cvy_facts_write(again, &second));
    CVY_ASSERT(strcmp(text, second) == 0);
    cvy_free(text);
    cvy_free(second);
    cvy_model_facts_free(&again);
  }
  cvy_model_facts_free(&facts);
  fuzz_end();
  return 0;
}
