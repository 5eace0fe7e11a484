/* SPDX-License-Identifier: MIT
 * Subcommands: the verbs of the program, and the words of `convoy bench`. */
#ifndef CVY_TOOLS_PROGRAM_SUBCOMMANDS_H
#define CVY_TOOLS_PROGRAM_SUBCOMMANDS_H

#include <stdbool.h>
#include <stdio.h>

typedef struct subcommand_row {
  const char *name;
  int (*run)(int argc, char **argv); /* argv[0] is the name; returns the exit status */
  const char *help;
} subcommand_row;

typedef struct subcommand_list {
  const char *verb;          /* the parent, "bench"; NULL: the program itself */
  const char *kind;          /* "verb" */
  const char *about, *after; /* around the list in the help */
  const subcommand_row *rows;
  int n_rows;
} subcommand_list;

void subcommands_usage(const subcommand_list *list, FILE *out);
/* Sets the function by which --help prints a list (reference.h). */
void subcommands_help_as(void (*print)(const subcommand_list *list));
/* Runs the row that argv[1] names with the remaining arguments; -h, --help and help print the list, or the help of the
 * word after them. An unknown word prints the list and the likely word on stderr. Returns the exit
 * status. */
int subcommands_run(const subcommand_list *list, int argc, char **argv);

#endif
