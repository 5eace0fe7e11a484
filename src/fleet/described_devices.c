/* SPDX-License-Identifier: MIT */
#include "src/fleet/described_devices.h"

#include <jansson.h>
#include <limits.h>
#include <stdlib.h>

#include "src/base/failure.h"
#include "src/base/mem.h"
#include "src/base/text.h"

enum { LABEL_BYTES = 160 }; /* as a device's own label */

/* A text of another machine that is printed, and a part of JSON. NULL: it is none. */
static json_t *plain_json(const json_t *text) {
  char plain[LABEL_BYTES];
  if (!json_is_string(text)) return NULL;
  cvy_plain_copy(json_string_value(text), "", plain, sizeof plain);
  return json_string(plain);
}

cvy_status cvy_described_devices(const json_t *list, int n, char **text) {
  cvy_status status = CVY_OK;
  json_t *const out = json_array();
  char *dumped = NULL;
  bool right = json_is_array(list) && json_array_size(list) == (size_t)n;
  *text = NULL;
  CVY_REQUIRE(out, CVY_E_MEMORY, "no memory to note the devices");
  for (int i = 0; i < n && right; i++) {
    const json_t *const device = json_array_get(list, (size_t)i);
    const json_int_t units = json_integer_value(json_object_get(device, "units"));
    json_t *const label = plain_json(json_object_get(device, "label")), *const driver = plain_json(
                                                                            json_object_get(device, "driver"));
    right = label && driver && units >= 1 && units <= INT_MAX;
    if (right)
      (void)json_array_append_new(out, json_pack("{sOsIsO}", "label", label, "units", units, "driver", driver));
    json_decref(label);
    json_decref(driver);
  }
  if (!right) goto fail;
  if (json_array_size(out) == (size_t)n) dumped = json_dumps(out, JSON_COMPACT);
  if (dumped) *text = cvy_strdup(dumped);
  CVY_REQUIRE(*text, CVY_E_MEMORY, "no memory to note the devices");
fail:
  free(dumped);
  json_decref(out);
  return status;
}
