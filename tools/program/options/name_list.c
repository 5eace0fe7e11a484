/* SPDX-License-Identifier: MIT */
#include "tools/program/options/name_list.h"

#include <errno.h>
#include <string.h>

#include "tools/program/program_common.h"

static bool begins(const name_list *list, const char *bytes, size_t n) {
  return list->all.size >= n && memcmp(list->all.data, bytes, n) == 0;
}

/* Ends of lines become NULs. */
static void end_lines(name_list *list) {
  char *const text = list->all.data; /* which has a NUL at its end */
  for (size_t i = 0; i <= list->all.size; i++) {
    if (text[i] && text[i] != '\n') continue;
    for (size_t k = i; k > 0 && text[k - 1] == '\r'; k--) text[k - 1] = '\0';
    text[i] = '\0';
  }
}

bool name_list_read(FILE *file, const char *title, name_list *out) {
  char piece[1 << 14];
  cvy_text all = {0};
  *out = (name_list){0};
  for (size_t n; (errno = 0, n = fread(piece, 1, sizeof piece, file)) > 0;) cvy_text_add_bytes(&all, piece, n);
  if (ferror(file) || all.failed) {
    program_say("error: %s: the list of names cannot be read: %s", title,
                ferror(file) ? strerror(errno) : "out of memory");
    cvy_text_clear(&all);
    return false;
  }
  *out = (name_list){.all = all};
  if (begins(out, "\xff\xfe", 2) || begins(out, "\xfe\xff", 2)) {
    program_say("error: %s: the list of names is in UTF-16: expected the names as in the file system, such as UTF-8",
                title);
    name_list_clear(out);
    return false;
  }
  if (begins(out, "\xef\xbb\xbf", 3)) out->at = 3;
  if (all.size && !memchr(all.data, '\0', all.size)) end_lines(out);
  return true;
}

const char *name_list_next(name_list *list) {
  const char *const text = cvy_text_get(&list->all);
  while (list->at < list->all.size && !text[list->at]) list->at++;
  if (list->at >= list->all.size) return NULL;
  const char *const name = text + list->at;
  list->at += strlen(name) + 1;
  return name;
}

void name_list_clear(name_list *list) {
  cvy_text_clear(&list->all);
  *list = (name_list){0};
}
