/* SPDX-License-Identifier: MIT */
#include "tools/program/subcommands.h"

#include <string.h>

#include "tools/program/program_name.h"
#include "tools/program/options/options.h"

void subcommands_usage(const subcommand_list *list, FILE *out) {
  fprintf(out, "usage: convoy %s%s%s [options]\n\n%s\n\n", list->verb ? list->verb : "", list->verb ? " " : "",
          list->verb ? "WORD" : "VERB", list->about);
  for (int i = 0; i < list->n_rows; i++) fprintf(out, "  %-10s %s\n", list->rows[i].name, list->rows[i].help);
  fprintf(out, "\n%s\n", list->after);
  program_name_note(out);
}

/* "devices, train or tune" */
static void names_of(const subcommand_list *list, char *out, size_t out_bytes) {
  size_t used = 0;
  out[0] = '\0';
  for (int i = 0; i < list->n_rows && used < out_bytes; i++)
    used += (size_t)snprintf(out + used, out_bytes - used, "%s%s",
                             i == 0                  ? ""
                             : i + 1 == list->n_rows ? " or "
                                                     : ", ",
                             list->rows[i].name);
}

/* NULL after a message. */
static const subcommand_row *find(const subcommand_list *list, const char *word) {
  char names[256];
  const char *all[16];
  for (int i = 0; i < list->n_rows; i++) {
    if (strcmp(word, list->rows[i].name) == 0) return &list->rows[i];
    all[i] = list->rows[i].name;
  }
  const char *const meant = options_nearest(word, all, list->n_rows);
  names_of(list, names, sizeof names);
  options_error(list->verb, "'%s': expected a %s: %s%s%s%s", word, list->kind, names, meant ? "; did you mean " : "",
                meant ? meant : "", meant ? "?" : "");
  return NULL;
}

static void (*help_printer)(const subcommand_list *list);

void subcommands_help_as(void (*print)(const subcommand_list *list)) { help_printer = print; }

static int run_help(const subcommand_list *list, int argc, char **argv) {
  char help[] = "--help";
  if (argc < 1) {
    if (help_printer) help_printer(list);
    else subcommands_usage(list, stdout);
    return options_help_done();
  }
  const subcommand_row *const row = find(list, argv[0]);
  char *args[] = {argv[0], help, argc > 1 ? argv[1] : NULL, NULL};
  return row ? row->run(argc > 1 ? 3 : 2, args) : EXIT_USAGE;
}

int subcommands_run(const subcommand_list *list, int argc, char **argv) {
  char names[256];
  if (argc < 2) {
    names_of(list, names, sizeof names);
    return options_error(list->verb, "a %s is missing: %s", list->kind, names);
  }
  const char *const word = argv[1];
  if (strcmp(word, "-h") == 0 || strcmp(word, "--help") == 0 || strcmp(word, "help") == 0)
    return run_help(list, argc - 2, argv + 2);
  const subcommand_row *const row = find(list, word);
  return row ? row->run(argc - 1, argv + 1) : EXIT_USAGE;
}
