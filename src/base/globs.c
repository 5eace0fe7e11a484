/* SPDX-License-Identifier: MIT */
#include "src/base/globs.h"

#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/base/mem.h"
#include "src/base/text.h"

cvy_status cvy_globs_read(const char *option, const char *text, bool values, cvy_globs *out) {
  cvy_status status = CVY_OK;
  char *rest;
  *out = (cvy_globs){.option = option};
  if (!text) return CVY_OK;
  out->text = rest = cvy_strdup(text);
  CVY_REQUIRE(rest, CVY_E_MEMORY, "out of host memory");
  for (char *item; (item = strsep(&rest, ","));) {
    CVY_REQUIRE(out->n < CVY_GLOBS_MOST, CVY_E_ARGUMENT, "%s: more than %d globs", option, CVY_GLOBS_MOST);
    char *const number = values ? strrchr(item, '=') : NULL;
    double *const value = &out->value[out->n];
    if (number) *number = '\0';
    CVY_REQUIRE(*item && (!values || (number && cvy_parse_float(number + 1, 0, 1e6, value))), CVY_E_ARGUMENT,
                "%s %s: expected %s", option, text,
                values ? "GLOB=X,..., with numbers X from 0 to 1e6" : "globs separated by commas");
    out->glob[out->n++] = item;
  }
fail:
  if (status != CVY_OK) cvy_globs_clear(out);
  return status;
}

void cvy_globs_clear(cvy_globs *globs) {
  cvy_free(globs->text);
  *globs = (cvy_globs){0};
}

static bool fits(const char *glob, const char *name) {
  char part[256];
  for (size_t i = 0; i < sizeof part; i++) {
    if (name[i] == '.' || name[i] == '\0') {
      snprintf(part, sizeof part, "%.*s", (int)i, name);
      if (fnmatch(glob, part, FNM_NOESCAPE) == 0) return true;
    }
    if (name[i] == '\0') return false;
  }
  return false;
}

int cvy_globs_find(cvy_globs *globs, const char *name) {
  int first = -1;
  for (int i = globs->n - 1; i >= 0; i--) {
    if (!fits(globs->glob[i], name)) continue;
    globs->used[i] = true;
    first = i;
  }
  return first;
}

cvy_status cvy_globs_check_used(const cvy_globs *globs, const char *there) {
  cvy_status status = CVY_OK;
  for (int i = 0; i < globs->n; i++)
    CVY_REQUIRE(globs->used[i], CVY_E_ARGUMENT, "%s: '%s' matches nothing; expected one of %s", globs->option,
                globs->glob[i], there);
fail:
  return status;
}
