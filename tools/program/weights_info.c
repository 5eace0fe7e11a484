/* SPDX-License-Identifier: MIT */
#include "tools/program/weights_info.h"

#include <string.h>

#include "tools/program/program_common.h"

static bool is_known(const char *model) {
  for (int i = 0; i < PROGRAM_MODELS; i++)
    if (strcmp(program_models[i], model) == 0) return true;
  return cvy_onnx_is_file(model);
}

int weights_info(const char *verb, const char *path, const char **model, cvy_model_info **info) {
  const cvy_status status = cvy_model_info_read(path, info);
  if (status != CVY_OK) return program_exit_code(status);
  cvy_model_info *const f = *info;
  if (!f || !f->model) {
    cvy_model_info_free(info);
    if (*model) return EXIT_DONE;
    return options_error(verb, "--model NAME is missing: %s does not name the network of its weights", path);
  }
  /* a file may have moved: the user's name is used, and the networks are compared later */
  if (*model && cvy_onnx_is_file(*model) && cvy_onnx_is_file(f->model)) f->model = *model;
  if (!is_known(f->model))
    (void)options_error(verb, "%s holds weights of the network '%s', which is not supported", path, f->model);
  else if (*model && strcmp(*model, f->model) != 0)
    (void)options_error(verb, "--model %s: %s holds weights of %s", *model, path, f->model);
  else {
    *model = f->model;
    return EXIT_DONE;
  }
  cvy_model_info_free(info);
  return EXIT_USAGE;
}
