/* SPDX-License-Identifier: MIT
 * Words of a command line that choose what runs: the verbs of the program, and those of `convoy bench`. */
#ifndef CVY_TOOLS_PROGRAM_SUBCOMMANDS_H
#define CVY_TOOLS_PROGRAM_SUBCOMMANDS_H

#include <stdbool.h>
#include <stdio.h>

typedef struct subcommand_row {
  const char *name;
  int (*run)(int argc, char **argv); /* argv[0] is the name; the exit status comes back */
  const char *help;
} subcommand_row;

typedef struct subcommand_list {
  const char *verb;          /* that has the words, "bench"; NULL: the program itself */
  const char *kind;          /* "verb" */
  const char *about, *after; /* around the list in the help */
  const subcommand_row *rows;
  int n_rows;
} subcommand_list;

void subcommands_usage(const subcommand_list *list, FILE *out);
/* From now on --help prints a list by this function (reference.h). */
void subcommands_help_as(void (*print)(const subcommand_list *list));
/* Runs the row that argv[1] names with the remaining arguments; -h, --help and help print the list, or the help of the
 * word behind them. For a word that is not on the list prints the list, and the likely one, on stderr. Returns the exit
 * status. */
int subcommands_run(const subcommand_list *list, int argc, char **argv);

#endif
