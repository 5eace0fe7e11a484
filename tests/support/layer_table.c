/* SPDX-License-Identifier: MIT
 * Open addressing: a handle lies in the first free cell from its own one on, and no free cell lies between. */
#include "tests/support/layer_table.h"

#include <stdint.h>
#include <stdlib.h>

static size_t own_cell(const layer_table *t, const void *handle) {
  const uint64_t mixed = (uint64_t)(uintptr_t)handle * UINT64_C(0x9e3779b97f4a7c15);
  return (size_t)(mixed >> 32) & (t->room - 1);
}

static size_t cell_of(const layer_table *t, const void *handle) {
  size_t at = own_cell(t, handle);
  while (t->cells[at].handle && t->cells[at].handle != handle) at = (at + 1) & (t->room - 1);
  return at;
}

void *layer_table_find(const layer_table *t, const void *handle) {
  if (t->room == 0 || !handle) return NULL;
  return t->cells[cell_of(t, handle)].value;
}

static void grow(layer_table *t) {
  layer_table larger = {.room = t->room ? 2 * t->room : 64};
  larger.cells = calloc(larger.room, sizeof *larger.cells);
  if (!larger.cells) abort();
  for (size_t i = 0; i < t->room; i++)
    if (t->cells[i].handle) layer_table_put(&larger, t->cells[i].handle, t->cells[i].value);
  free(t->cells);
  *t = larger;
}

void layer_table_put(layer_table *t, const void *handle, void *value) {
  if (2 * (t->n + 1) > t->room) grow(t);
  struct layer_cell *const cell = &t->cells[cell_of(t, handle)];
  t->n += !cell->handle;
  *cell = (struct layer_cell){handle, value};
}

/* Moves later cells of the run into the gap, so that they are still found. */
void layer_table_drop(layer_table *t, const void *handle) {
  if (!layer_table_find(t, handle)) return;
  size_t gap = cell_of(t, handle);
  for (size_t at = (gap + 1) & (t->room - 1); t->cells[at].handle; at = (at + 1) & (t->room - 1)) {
    const size_t own = own_cell(t, t->cells[at].handle);
    const size_t from_own = (at - own) & (t->room - 1), from_gap = (at - gap) & (t->room - 1);
    if (from_own < from_gap) continue;
    t->cells[gap] = t->cells[at];
    gap = at;
  }
  t->cells[gap] = (struct layer_cell){NULL, NULL};
  t->n--;
}
