/* SPDX-License-Identifier: MIT */
#include "src/nn/choices.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/json.h"
#include "src/base/mem.h"

cvy_status cvy_choices_write(const cvy_net *net, const cvy_conv_choices *table, int n_devices, char **text) {
  cvy_status status = CVY_OK;
  json_t *const devices = json_array();
  char *dumped = NULL, word[CVY_CONV_CHOICE_BYTES];
  bool ok = devices != NULL;
  *text = NULL;
  for (int d = 0; d < n_devices && ok; d++) {
    json_t *const layers = json_object();
    ok = json_array_append_new(devices, layers) == 0;
    for (int l = 0; l < net->n_layers && ok; l++) {
      const cvy_conv_choice *const choice = table[(size_t)d * (size_t)net->n_layers + (size_t)l].pass;
      bool any = false;
      if (table[(size_t)d * (size_t)net->n_layers + (size_t)l].convpool) {
        ok = json_object_set_new(layers, net->layers[l].name, json_string("convpool")) == 0;
        continue;
      }
      for (int pass = 0; pass < CVY_CONV_PASSES; pass++) any |= choice[pass].algo != CVY_CONV_AUTO;
      if (!any) continue;
      json_t *const passes = json_array();
      for (int pass = 0; pass < CVY_CONV_PASSES && ok; pass++)
        ok = json_array_append_new(passes, choice[pass].algo == CVY_CONV_AUTO
                                               ? json_null()
                                               : json_string(cvy_conv_choice_text(&choice[pass], word, sizeof word))) ==
             0;
      ok = json_object_set_new(layers, net->layers[l].name, passes) == 0 && ok;
    }
  }
  if (ok) dumped = json_dumps(devices, JSON_COMPACT);
  if (dumped) *text = cvy_strdup(dumped);
  CVY_REQUIRE(*text, CVY_E_MEMORY, "no memory to note the algorithms");
fail:
  free(dumped);
  json_decref(devices);
  return status;
}

cvy_status cvy_choices_read(const char *text, const cvy_net *net, int n_devices, const int *rows,
                            cvy_conv_choices *table) {
  cvy_status status = CVY_OK;
  json_t *devices;
  CVY_TRY(cvy_json_read(text, 0, &devices));
  for (int d = 0; d < n_devices; d++) {
    const json_t *const layers = json_array_get(devices, (size_t)(rows ? rows[d] : d)); /* NULL for -1 */
    for (int l = 0; l < net->n_layers; l++) {
      cvy_conv_choices *const choices = &table[(size_t)d * (size_t)net->n_layers + (size_t)l];
      const json_t *const passes = net->layers[l].name[0] ? json_object_get(layers, net->layers[l].name) : NULL;
      memset(choices, 0, sizeof *choices); /* AUTO, also for "convpool", which the device takes where it can */
      for (int pass = 0; pass < CVY_CONV_PASSES; pass++) {
        const char *const word = json_string_value(json_array_get(passes, (size_t)pass));
        if (word) (void)cvy_conv_choice_parse(word, &choices->pass[pass]);
      }
    }
  }
  json_decref(devices);
fail:
  return status;
}

static const char *word_of(const json_t *devices, size_t device, const char *layer, size_t pass) {
  const json_t *const passes = json_object_get(json_array_get(devices, device), layer);
  const char *const word = json_string_value(json_is_string(passes) ? passes : json_array_get(passes, pass));
  return word ? word : "nothing";
}

/* CVY_E_MISMATCH if a layer of `of` has another word in `was` than in `is`. */
static cvy_status compare_layers(const json_t *of, const json_t *was, const json_t *is) {
  cvy_status status = CVY_OK;
  for (size_t d = 0; d < json_array_size(of); d++) {
    const char *layer;
    json_t *unused;
    json_object_foreach(json_array_get(of, d), layer, unused) {
      for (size_t pass = 0; pass < CVY_CONV_PASSES; pass++) {
        const char *const before = word_of(was, d, layer, pass), *const now = word_of(is, d, layer, pass);
        CVY_REQUIRE(strcmp(before, now) == 0, CVY_E_MISMATCH,
                    "algorithms have changed, the run cannot be resumed (layer '%s', %s, device %zu: %s in the "
                    "checkpoint, %s now)",
                    layer, cvy_conv_pass_name((cvy_conv_pass)pass), d, before, now);
      }
    }
  }
fail:
  return status;
}

cvy_status cvy_choices_compare(const char *in_checkpoint, const char *now) {
  cvy_status status = CVY_OK;
  json_t *was = NULL, *is = NULL;
  CVY_TRY(cvy_json_read(in_checkpoint, JSON_REJECT_DUPLICATES, &was));
  CVY_TRY(cvy_json_read(now, 0, &is));
  CVY_REQUIRE(json_is_array(was) && json_is_array(is), CVY_E_FORMAT,
              "the algorithms in the checkpoint are not a list: %.200s", in_checkpoint);
  CVY_REQUIRE(json_array_size(was) == json_array_size(is), CVY_E_MISMATCH,
              "the checkpoint has algorithms of %zu devices, there are %zu", json_array_size(was), json_array_size(is));
  CVY_TRY(compare_layers(was, was, is));
  CVY_TRY(compare_layers(is, was, is));
fail:
  json_decref(was);
  json_decref(is);
  return status;
}
