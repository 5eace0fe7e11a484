/* SPDX-License-Identifier: MIT
 * A hash table from an OpenCL handle to what the test layer (layer.c) notes of it. No lock of its own. */
#ifndef CVY_TESTS_SUPPORT_LAYER_TABLE_H
#define CVY_TESTS_SUPPORT_LAYER_TABLE_H

#include <stddef.h>

typedef struct layer_table { /* zeros: empty */
  struct layer_cell {
    const void *handle; /* NULL: free */
    void *value;
  } *cells;
  size_t room, n;
} layer_table;

/* NULL: none. */
void *layer_table_find(const layer_table *table, const void *handle);
/* Replaces what the handle had. Ends the program where there is no memory. */
void layer_table_put(layer_table *table, const void *handle, void *value);
void layer_table_drop(layer_table *table, const void *handle);

#endif
