/* SPDX-License-Identifier: MIT
 * Tuned choices of one device, the fastest for each convolution's shape, batch and pass; in memory and on the disk.
 * Pure except for cvy_tune_table_open, which reads the device's name and driver. One thread per table.
 *
 * On disk: $XDG_CACHE_HOME/convoy/tune-NAME-KEY.txt (or ~/.cache/convoy/…), NAME the device's for people, KEY 16
 * hexadecimal digits: XXH3-64 of everything in the head but the kernels. Lines, each ended by a newline:
 *   convoy-tune 1                                                    format and its version
 *   device: … | platform: … | driver: … | units: … cpu|simt          the device of the measurements
 *   kernels: 32 hexadecimal digits                                   XXH3-128 of the sources of all convolution kernels
 *   N PASS SHAPE = CHOICE MS DEFAULT MS                              any number, in the order of their texts
 *   end 16 hexadecimal digits                                        XXH64 of everything above
 * PASS as cvy_conv_pass_name, SHAPE as cvy_tune_shape_text, CHOICE and DEFAULT as cvy_conv_choice_text; MS are
 * whole microseconds: median times of the choice and of the shipped default for N samples.
 * A file that is short, damaged, of another version, device or other kernels counts as not there, and the table says
 * why; the next save replaces it. Writers work aside and rename: readers see an old or a new file, never a
 * half. Saving adds the table's entries to the file's; of two processes that save at once one may lose its entries.
 * CVY_NO_TUNE=1: no file is read or written (for tests). */
#ifndef CVY_OPS_TUNE_TUNE_TABLE_H
#define CVY_OPS_TUNE_TUNE_TABLE_H

#include "src/ops/conv2d/conv2d.h"

enum { CVY_TUNE_SHAPE_BYTES = 128 };

typedef struct cvy_tune_entry {
  int n; /* samples */
  cvy_conv_pass pass;
  char shape[CVY_TUNE_SHAPE_BYTES];
  cvy_conv_choice choice, standard; /* the best one, the shipped default */
  int64_t choice_us, standard_us;
} cvy_tune_entry;

typedef struct cvy_tune_table {
  char *head;        /* the file's lines in front of the entries */
  char *path;        /* NULL: there is no place for a file */
  bool loaded;       /* the last cvy_tune_table_load found a good file */
  const char *wrong; /* why the file that is there is not used, as "is damaged"; NULL else. Static */
  cvy_tune_entry *entries;
  int n;
  size_t capacity;
} cvy_tune_table;

/* Everything that a pass's speed depends on except the samples: "28x28x64/64 64/64 3x3 1x1 1x1 b1 s1 p0": input,
 * filters with pitches, filter, stride, padding, bias, statistics, prologue flags; 0 if the pass does not use it. "
 * tf32" behind it: with that arithmetic; " g32", " d2x2", " m1x1": groups, dilation, more padding behind, where there
 * are some. */
const char *cvy_tune_shape_text(const cvy_conv2d_params *params, cvy_conv_pass pass, char out[CVY_TUNE_SHAPE_BYTES]);

/* An empty table for an opened device. CVY_E_MEMORY, CVY_E_IO (the kernels' sources cannot be read). */
cvy_status cvy_tune_table_open(cvy_device *device, cvy_tune_table **out);
/* The same for any head and path (copied; path NULL: no file), for tests. */
cvy_status cvy_tune_table_create(const char *head, const char *path, cvy_tune_table **out);
void cvy_tune_table_destroy(cvy_tune_table **table);

/* Reads the file's entries into the table; those that it has already stay. Without a good file nothing is loaded
 * (table->loaded, and table->wrong if there is a bad one). Does not log a bad file: the caller, which knows what it
 * does instead, logs both at once. CVY_E_MEMORY, with the table unchanged. */
cvy_status cvy_tune_table_load(cvy_tune_table *table);
/* CVY_E_IO, with the reason logged. Does nothing without a path. */
cvy_status cvy_tune_table_save(const cvy_tune_table *table);
/* Removes the file; true if there was one. The table stays. */
bool cvy_tune_table_remove(const cvy_tune_table *table);

/* Adds an entry, or replaces the one with the same n, pass and shape. CVY_E_MEMORY. */
cvy_status cvy_tune_table_put(cvy_tune_table *table, const cvy_tune_entry *entry);
/* The entry for this pass of these params: for their n_max, or for the nearest number of samples (ratio; the larger of
 * equals) that is at most CVY_TUNE_NEAREST times larger or smaller. NULL: none. Borrowed until the next put. */
enum { CVY_TUNE_NEAREST = 8 };
const cvy_tune_entry *cvy_tune_table_find(const cvy_tune_table *table, const cvy_conv2d_params *params,
                                          cvy_conv_pass pass);

#endif
