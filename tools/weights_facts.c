/* SPDX-License-Identifier: MIT */
#include "tools/weights_facts.h"

#include <string.h>

#include "tools/program_common.h"

int weights_facts(const char *verb, const char *path, bool given, int *model, cvy_model_facts **facts) {
  int place = 0;
  const cvy_status status = cvy_model_facts_read(path, facts);
  if (status != CVY_OK) return program_exit_code(status);
  if (!*facts || !(*facts)->model) {
    cvy_model_facts_free(facts);
    if (given) return EXIT_DONE;
    return options_error(verb, "--model NAME is missing: %s does not say which network its weights belong to", path);
  }
  while (place < PROGRAM_MODELS && strcmp(program_models[place], (*facts)->model) != 0) place++;
  if (place == PROGRAM_MODELS)
    (void)options_error(verb, "%s holds weights of the network '%s', which this program does not know", path,
                        (*facts)->model);
  else if (given && place != *model)
    (void)options_error(verb, "--model %s: %s holds weights of %s", program_models[*model], path, (*facts)->model);
  else {
    *model = place;
    return EXIT_DONE;
  }
  cvy_model_facts_free(facts);
  return EXIT_USAGE;
}
