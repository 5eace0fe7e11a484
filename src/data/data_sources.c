/* SPDX-License-Identifier: MIT */
#include "src/data/data_sources.h"

static const data_source *const with_names[] = {&data_fashion_mnist, &data_synthetic}, *const with_files[] = {
                                                                                           &data_idx, &data_cifar};

static const data_source *find(const data_source *const *rows, size_t n, const char *spec) {
  for (size_t i = 0; i < n; i++)
    if (rows[i]->is_mine(spec)) return rows[i];
  return NULL;
}

const data_source *data_source_of_name(const char *spec) {
  return find(with_names, sizeof with_names / sizeof *with_names, spec);
}

const data_source *data_source_of_files(const char *dir) {
  return find(with_files, sizeof with_files / sizeof *with_files, dir);
}
