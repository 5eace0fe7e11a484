/* SPDX-License-Identifier: MIT
 * Models by name. */
#include "convoy/net.h"

#include <string.h>

#include "src/base/failure.h"

static const struct {
  const char *name;
  cvy_status (*make)(int channels, int height, int width, int classes, cvy_net **out);
} models[] = {
    {"resnet18", cvy_net_resnet18},
    {"lenet", cvy_net_lenet},
    {"resnet34", cvy_net_resnet34},
    {"resnet50", cvy_net_resnet50},
};

cvy_status cvy_net_model(const char *name, int channels, int height, int width, int classes, cvy_net **out) {
  cvy_status status = CVY_OK;
  if (out) *out = NULL;
  for (size_t i = 0; name && i < sizeof models / sizeof models[0]; i++)
    if (!strcmp(models[i].name, name)) return models[i].make(channels, height, width, classes, out);
  CVY_FAIL(CVY_E_ARGUMENT, "there is no model '%s': the models are resnet18, lenet, resnet34 and resnet50",
           name ? name : "(null)");
fail:
  return status;
}
