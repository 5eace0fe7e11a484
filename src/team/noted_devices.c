/* SPDX-License-Identifier: MIT */
#include "src/team/noted_devices.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/json.h"
#include "src/base/mem.h"
#include "src/base/text.h"

/* "0:0/1 NAME" → "NAME". */
static const char *name_of(const char *label) {
  const char *const space = strchr(label, ' ');
  return space ? space + 1 : label;
}

/* A device of a checkpoint: an object, or in older ones its label alone. */
const char *cvy_noted_label(const json_t *device) {
  return json_string_value(json_is_object(device) ? json_object_get(device, "label") : device);
}

cvy_status cvy_noted_text(const cvy_devices *devices, char **text) {
  cvy_status status = CVY_OK;
  json_t *const list = json_array();
  char *dumped = NULL;
  *text = NULL;
  for (int i = 0; i < devices->n; i++)
    (void)json_array_append_new(
        list, json_pack("{sssiss}", "label", cvy_devices_label(devices, i), "units", cvy_devices_units(devices, i),
                        "driver", cvy_devices_driver(devices, i)));
  if (json_array_size(list) == (size_t)devices->n) dumped = json_dumps(list, JSON_COMPACT);
  if (dumped) *text = cvy_strdup(dumped);
  CVY_REQUIRE(*text, CVY_E_MEMORY, "no memory to note the devices");
fail:
  free(dumped);
  json_decref(list);
  return status;
}

cvy_status cvy_noted_rows(const char *checkpoint_devices, const cvy_devices *devices, int *rows) {
  cvy_status status = CVY_OK;
  json_t *list;
  CVY_TRY(cvy_json_read(checkpoint_devices, 0, &list));
  const int n = (int)json_array_size(list);
  for (int i = 0; i < devices->n; i++) {
    const char *const own = cvy_devices_label(devices, i);
    rows[i] = -1;
    for (int pass = 0; pass < 3 && rows[i] < 0; pass++) /* in its own place, anywhere, of the same name */
      for (int row = pass ? 0 : i; row < (pass ? n : i + 1) && rows[i] < 0; row++) {
        const char *const label = cvy_noted_label(json_array_get(list, (size_t)row));
        if (label && strcmp(pass < 2 ? label : name_of(label), pass < 2 ? own : name_of(own)) == 0) rows[i] = row;
      }
  }
  json_decref(list);
fail:
  return status;
}

/* The device has the compute units and the driver that the checkpoint notes, if it does. */
bool cvy_noted_same_make(const json_t *noted, const cvy_devices *devices, int i) {
  const json_t *const units = json_object_get(noted, "units");
  const char *const driver = json_string_value(json_object_get(noted, "driver"));
  return (!units || json_integer_value(units) == cvy_devices_units(devices, i)) &&
         (!driver || strcmp(driver, cvy_devices_driver(devices, i)) == 0);
}

bool cvy_noted_makes(const char *checkpoint_devices) {
  json_t *const list = json_loads(checkpoint_devices, 0, NULL);
  bool known = true;
  for (size_t i = 0; i < json_array_size(list); i++)
    known &= json_is_integer(json_object_get(json_array_get(list, i), "units")) &&
             json_is_string(json_object_get(json_array_get(list, i), "driver"));
  json_decref(list);
  return known;
}

cvy_status cvy_noted_same(const char *checkpoint_devices, const cvy_devices *devices, bool *same) {
  cvy_status status = CVY_OK;
  json_t *list;
  CVY_TRY(cvy_json_read(checkpoint_devices, 0, &list));
  *same = (int)json_array_size(list) == devices->n;
  for (int i = 0; i < devices->n && *same; i++) {
    const json_t *const noted = json_array_get(list, (size_t)i);
    const char *const label = cvy_noted_label(noted);
    *same = label && strcmp(name_of(label), name_of(cvy_devices_label(devices, i))) == 0 &&
            cvy_noted_same_make(noted, devices, i);
  }
  json_decref(list);
fail:
  return status;
}

bool cvy_noted_alike(const cvy_devices *devices) {
  bool alike = true;
  for (int i = 1; i < devices->n && alike; i++)
    alike = strcmp(name_of(cvy_devices_label(devices, i)), name_of(cvy_devices_label(devices, 0))) == 0 &&
            strcmp(cvy_devices_driver(devices, i), cvy_devices_driver(devices, 0)) == 0 &&
            cvy_devices_units(devices, i) == cvy_devices_units(devices, 0);
  return alike;
}

/* ---- devices of other machines ---- */

static void take_device(cvy_devices *devices, const json_t *noted) {
  const char *const label = cvy_noted_label(noted);
  const char *const driver = json_string_value(json_object_get(noted, "driver"));
  const int i = devices->n++;
  cvy_device_info *const item = &devices->list->items[i];
  cvy_plain_copy(label ? label : "?", "", devices->selected[i].label, sizeof devices->selected[i].label);
  cvy_plain_copy(driver ? driver : "?", "", item->driver, sizeof item->driver);
  item->compute_units = (int)json_integer_value(json_object_get(noted, "units"));
  devices->selected[i].item = i;
}

cvy_status cvy_noted_devices(const char *const *texts, int n, cvy_devices **out) {
  cvy_status status = CVY_OK;
  json_t *all = json_array(), *list = NULL;
  cvy_devices *devices = cvy_calloc(1, sizeof *devices);
  *out = NULL;
  CVY_REQUIRE(all && devices, CVY_E_MEMORY, "out of host memory");
  for (int r = 0; r < n; r++) {
    CVY_TRY(cvy_json_read(texts[r], 0, &list));
    CVY_REQUIRE(json_is_array(list) && json_array_extend(all, list) == 0, CVY_E_FORMAT,
                "the devices of node %d are not a JSON array: %.200s", r, texts[r]);
    json_decref(list);
    list = NULL;
  }
  const size_t count = json_array_size(all);
  devices->list = cvy_calloc(1, sizeof *devices->list);
  devices->selected = cvy_calloc(count + 1, sizeof *devices->selected);
  CVY_REQUIRE(devices->list && devices->selected, CVY_E_MEMORY, "out of host memory");
  devices->list->items = cvy_calloc(count + 1, sizeof *devices->list->items);
  CVY_REQUIRE(devices->list->items, CVY_E_MEMORY, "out of host memory");
  devices->list->n = (int)count;
  for (size_t i = 0; i < count; i++) take_device(devices, json_array_get(all, i));
  *out = devices;
  devices = NULL;
fail:
  cvy_noted_devices_destroy(&devices);
  json_decref(list);
  json_decref(all);
  return status;
}

void cvy_noted_devices_destroy(cvy_devices **devices) {
  cvy_devices *const d = *devices;
  if (!d) return;
  if (d->list) cvy_free(d->list->items);
  cvy_free(d->list);
  cvy_free(d->selected);
  cvy_free(d);
  *devices = NULL;
}
