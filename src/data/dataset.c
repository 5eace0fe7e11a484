/* SPDX-License-Identifier: MIT */
#include "src/data/dataset.h"

#include "src/base/mem.h"
#include "src/base/text.h"
#include "src/data/resize.h"

const char *const data_set_names[CVY_SETS] = {"training", "validation", "test"};

cvy_status data_add_file(dataset *d, const char *path) {
  cvy_status status = CVY_OK;
  char **const files = cvy_realloc(d->files, (size_t)d->n_files, (size_t)d->n_files + 1, sizeof *d->files);
  CVY_REQUIRE(files, CVY_E_MEMORY, "no memory to read %s", path);
  d->files = files;
  files[d->n_files] = cvy_strdup(path);
  CVY_REQUIRE(files[d->n_files], CVY_E_MEMORY, "no memory to read %s", path);
  d->n_files++;
fail:
  return status;
}

cvy_status data_show_names(dataset *d, const char *where, const char **equal) {
  cvy_status status = CVY_OK;
  cvy_text plain = {0};
  int n = 0, first = 0;
  for (int i = 0; i < d->data.classes; i++) {
    if (cvy_is_plain(d->names[i])) continue;
    if (n++ == 0) first = i;
    cvy_text_add_plain(&plain, d->names[i], "");
    cvy_free(d->names[i]);
    d->names[i] = plain.failed ? NULL : cvy_strdup(cvy_text_get(&plain));
    CVY_REQUIRE(d->names[i], CVY_E_MEMORY, "no memory for the names of the classes of %s", where);
    cvy_text_clear(&plain);
  }
  if (n)
    cvy_log_warning(
        "%s: %d class name%s not plain UTF-8: each byte that is wrong there is shown as \\x and two digits; the "
        "first is '%s'",
        where, n, n > 1 ? "s are" : " is", d->names[first]);
  CVY_TRY(cvy_text_find_equal((const char *const *)d->names, d->data.classes, equal));
fail:
  cvy_text_clear(&plain);
  return status;
}

bool data_is_fitted(const dataset *d) { return d->params.size_h != 0 || (d->params.gray && d->c == 3); }

static double count_images(const dataset *d) {
  double n = 0;
  for (int set = 0; set < CVY_SETS; set++) n += d->raw[set].n;
  return n;
}

double data_memory_bytes(const dataset *d) {
  const cvy_fit fit = cvy_fit_of(&d->params, d->h, d->w);
  const double raw = (double)d->h * d->w * d->c, fitted = data_is_fitted(d) ? (double)fit.h * fit.w * d->c : 0;
  return count_images(d) * (raw + fitted + sizeof(uint16_t)) + d->params.val_split * d->raw[0].n * (fitted + raw);
}

cvy_status data_check_memory(const dataset *d, const char *spec, cvy_status code) {
  cvy_status status = CVY_OK;
  const cvy_fit fit = cvy_fit_of(&d->params, d->h, d->w);
  const bool larger = data_is_fitted(d) && (double)fit.h * fit.w > (double)d->h * d->w;
  const int h = larger ? fit.h : d->h, w = larger ? fit.w : d->w;
  const double n = count_images(d), bytes = data_memory_bytes(d);
  const uint64_t memory = cvy_host_memory_bytes();
  CVY_REQUIRE(bytes <= (double)memory, code,
              "data '%s': %.0f images of %dx%dx%d need %.1f GiB, there are %.1f GiB of memory", spec, n, h, w, d->c,
              bytes / (1 << 30), (double)memory / (1 << 30));
fail:
  return status;
}

cvy_status data_take_memory(dataset *d, int set) {
  cvy_status status = CVY_OK;
  raw_set *const raw = &d->raw[set];
  size_t bytes;
  CVY_REQUIRE(cvy_mul_size((size_t)raw->n, (size_t)d->h * (size_t)d->w * (size_t)d->c, &bytes), CVY_E_MEMORY,
              "the size of %d images of %dx%dx%d overflows", raw->n, d->h, d->w, d->c);
  raw->images = cvy_alloc_unset(bytes, 1);
  CVY_REQUIRE(raw->images, CVY_E_MEMORY, "no memory for the %zu bytes of %s images", bytes, data_set_names[set]);
fail:
  return status;
}
