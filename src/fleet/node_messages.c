/* SPDX-License-Identifier: MIT */
#include "src/fleet/node_messages.h"

#include <string.h>

#include "src/base/json.h"
#include "src/base/mem.h"
#include "src/base/text.h"

enum { TEXT_MOST = 16 << 20 };   /* bytes of one node's text */
enum { VALUES_MOST = 1 << 20 };  /* JSON values of one text */
enum { PIECE_BYTES = 16 << 20 }; /* of what is spread: no more memory is taken before so many bytes have come */

/* All pieces come back, those too that this node has sent. */
static cvy_status take_all(cvy_fleet *f, int next, char *all, size_t bytes, size_t so_far) {
  cvy_status status = CVY_OK;
  char *const came = cvy_alloc_unset(bytes, 1);
  CVY_REQUIRE(came, CVY_E_MEMORY, "out of host memory for %zu bytes of all nodes", bytes);
  CVY_TRY(cvy_fleet_explain(f, next, cvy_fleet_take(f, next, CVY_LINK_DOWN, came, bytes)));
  if (memcmp(came, all, so_far) != 0)
    CVY_TRY(cvy_fleet_refuse(f, next, "sends back changed messages of the nodes before it"));
  memcpy(all + so_far, came + so_far, bytes - so_far);
fail:
  cvy_free(came);
  return status;
}

cvy_status cvy_fleet_gather(cvy_fleet *f, void *data, size_t bytes, size_t own_at, size_t own_bytes) {
  cvy_status status = CVY_OK;
  const int previous = cvy_fleet_previous(f), next = cvy_fleet_next(f);
  char *const all = data;
  /* up: pieces before this node's; down: all of them */
  if (previous >= 0 && own_at > 0)
    CVY_TRY(cvy_fleet_explain(f, previous, cvy_fleet_take(f, previous, CVY_LINK_UP, all, own_at)));
  const size_t so_far = own_at + own_bytes;
  if (next >= 0 && so_far > 0) CVY_TRY(cvy_fleet_explain(f, next, cvy_fleet_give(f, next, CVY_LINK_UP, all, so_far)));
  if (next >= 0 && bytes > 0) CVY_TRY(take_all(f, next, all, bytes, so_far));
  if (previous >= 0 && bytes > 0)
    CVY_TRY(cvy_fleet_explain(f, previous, cvy_fleet_give(f, previous, CVY_LINK_DOWN, all, bytes)));
fail:
  return status;
}

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

static cvy_status grow(void **data, size_t had, size_t bytes) {
  cvy_status status = CVY_OK;
  void *const more = cvy_alloc_unset(bytes, 1);
  CVY_REQUIRE(more, CVY_E_MEMORY, "out of host memory for %zu bytes of the head", bytes);
  if (had) memcpy(more, *data, had);
  cvy_free(*data);
  *data = more;
fail:
  return status;
}

/* The head's bytes, piece by piece; twice as much memory each time that it is full. */
static cvy_status take_pieces(cvy_fleet *f, int previous, void **data, size_t size) {
  cvy_status status = CVY_OK;
  size_t room = 0;
  for (size_t at = 0, n; at < size; at += n) {
    n = smaller(size - at, PIECE_BYTES);
    if (at + n > room) {
      const size_t wanted = smaller(size, at + n > 2 * room ? at + n : 2 * room);
      CVY_TRY(grow(data, at, wanted));
      room = wanted;
    }
    CVY_TRY(cvy_fleet_explain(f, previous, cvy_fleet_take(f, previous, CVY_LINK_UP, (char *)*data + at, n)));
  }
fail:
  return status;
}

cvy_status cvy_fleet_spread(cvy_fleet *f, void **data, size_t *bytes, size_t most) {
  cvy_status status = CVY_OK;
  const int previous = cvy_fleet_previous(f), next = cvy_fleet_next(f);
  uint64_t size = previous < 0 ? *bytes : 0;
  if (previous >= 0) {
    *data = NULL;
    CVY_TRY(cvy_fleet_explain(f, previous, cvy_fleet_take(f, previous, CVY_LINK_UP, &size, sizeof size)));
    if (size > most)
      CVY_TRY(cvy_fleet_refuse(f, previous, "sends %llu bytes for all nodes; expected at most %zu",
                               (unsigned long long)size, most));
    CVY_TRY(take_pieces(f, previous, data, size));
    *bytes = size;
  }
  if (next >= 0) {
    CVY_TRY(cvy_fleet_explain(f, next, cvy_fleet_give(f, next, CVY_LINK_UP, &size, sizeof size)));
    for (size_t at = 0, n; at < size; at += n) {
      n = smaller(size - at, PIECE_BYTES);
      CVY_TRY(cvy_fleet_explain(f, next, cvy_fleet_give(f, next, CVY_LINK_UP, (const char *)*data + at, n)));
    }
  }
  return CVY_OK;
fail:
  if (previous >= 0) {
    cvy_free(*data);
    *data = NULL;
  }
  return status;
}

void cvy_fleet_free_texts(const cvy_fleet *f, char ***texts) {
  for (int r = 0; *texts && r < cvy_fleet_size(f); r++) cvy_free((*texts)[r]);
  cvy_free(*texts);
  *texts = NULL;
}

cvy_status cvy_fleet_gather_texts(cvy_fleet *f, const char *own, char ***out) {
  cvy_status status = CVY_OK;
  const int size = cvy_fleet_size(f), rank = cvy_fleet_rank(f);
  uint64_t lengths[CVY_NODES_MOST] = {0}, before = 0, all = 0;
  char *bytes = NULL;
  *out = NULL;
  lengths[rank] = strlen(own);
  CVY_TRY(
      cvy_fleet_gather(f, lengths, (size_t)size * sizeof *lengths, (size_t)rank * sizeof *lengths, sizeof *lengths));
  for (int r = 0; r < size; r++) {
    if (lengths[r] > TEXT_MOST)
      CVY_TRY(cvy_fleet_refuse(f, r, "has a text of %llu bytes for the other nodes; expected at most %d",
                               (unsigned long long)lengths[r], TEXT_MOST));
    before += r < rank ? lengths[r] : 0;
    all += lengths[r];
  }
  bytes = cvy_calloc(all + 1, 1);
  *out = cvy_calloc((size_t)size, sizeof **out);
  CVY_REQUIRE(bytes && *out, CVY_E_MEMORY, "out of host memory");
  memcpy(bytes + before, own, lengths[rank]);
  CVY_TRY(cvy_fleet_gather(f, bytes, all, before, lengths[rank]));
  for (uint64_t r = 0, at = 0; r < (uint64_t)size; at += lengths[r++]) {
    char *const text = (*out)[r] = cvy_calloc(lengths[r] + 1, 1);
    CVY_REQUIRE(text, CVY_E_MEMORY, "out of host memory");
    memcpy(text, bytes + at, lengths[r]);
  }
fail:
  if (status != CVY_OK) cvy_fleet_free_texts(f, out);
  cvy_free(bytes);
  return status;
}

cvy_status cvy_fleet_read_json(cvy_fleet *f, int r, const char *text, json_t **out) {
  cvy_status status = CVY_OK;
  *out = NULL;
  if (cvy_json_count_values(text, strlen(text)) <= VALUES_MOST) CVY_TRY(cvy_json_read(text, JSON_DECODE_ANY, out));
  if (!*out) CVY_TRY(cvy_fleet_refuse(f, r, "sends a text that is not JSON, or too much of it: %.200s", text));
fail:
  return status;
}

cvy_status cvy_fleet_gather_list(cvy_fleet *f, const char *own, char **out) {
  cvy_status status = CVY_OK;
  char **texts = NULL;
  json_t *list = NULL;
  cvy_text all = {0};
  *out = NULL;
  CVY_TRY(cvy_fleet_gather_texts(f, own, &texts));
  cvy_text_add(&all, "[");
  for (int r = 0; r < cvy_fleet_size(f); r++) {
    const size_t n = strlen(texts[r]);
    CVY_TRY(cvy_fleet_read_json(f, r, texts[r], &list));
    if (!json_is_array(list) || texts[r][0] != '[' || texts[r][n - 1] != ']')
      CVY_TRY(cvy_fleet_refuse(f, r, "sends a text that is not a list: %.200s", texts[r]));
    if (json_array_size(list) > 0) cvy_text_add(&all, "%s%.*s", all.size > 1 ? "," : "", (int)(n - 2), texts[r] + 1);
    json_decref(list);
    list = NULL;
  }
  cvy_text_add(&all, "]");
  CVY_REQUIRE(!all.failed, CVY_E_MEMORY, "out of host memory");
  *out = cvy_strdup(cvy_text_get(&all));
  CVY_REQUIRE(*out, CVY_E_MEMORY, "out of host memory");
fail:
  json_decref(list);
  cvy_text_clear(&all);
  cvy_fleet_free_texts(f, &texts);
  return status;
}
