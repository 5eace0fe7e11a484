/* SPDX-License-Identifier: MIT
 * Outline: text in both formats · a table of options · a list of subcommands · the whole. */
#include "tools/program/options/reference.h"

#include <ctype.h>
#include <string.h>

#include "convoy/convoy.h"
#include "src/base/env.h"
#include "tools/program/options/options.h"

static bool man; /* else Markdown */

/* ---- text ---- */

/* Escapes markup of both formats. */
static void put(const char *text, size_t length) {
  for (size_t i = 0; i < length; i++) {
    const char c = text[i];
    const bool begins = i == 0 || !isalnum((unsigned char)text[i - 1]);
    if (!man) printf(strchr("*<|", c) ? "\\%c" : "%c", c);
    else if (i == 0 && strchr(".'", c)) printf("\\&%c", c);
    else if (c == '\\') printf("\\e");
    else printf(c == '-' && begins ? "\\%c" : "%c", c);
  }
}

/* Heading of a verb ("convoy train") or of the page. */
static void heading(const char *before, const char *text) {
  if (!man) printf("\n## %s%s\n", before, text);
  else printf(*before ? ".SS %s%s\n" : ".SH %s%s\n", before, text);
}

/* Lines are filled, except those that begin with a blank (options.h). */
static void paragraphs(const char *text) {
  bool literal = false;
  for (size_t length; *text; text += length + (text[length] == '\n')) {
    length = strcspn(text, "\n");
    if (literal != (*text == ' ')) {
      literal = !literal;
      if (man) printf(literal ? ".PP\n.nf\n.in +4n\n" : ".in\n.fi\n.PP\n");
      else printf(literal ? "\n```\n" : "```\n\n");
    }
    if (literal && !man) printf("%.*s", (int)length - 2, text + 2);
    else put(text + (literal ? 2 : 0), length - (literal ? 2 : 0));
    printf("\n");
  }
  if (literal) printf(man ? ".in\n.fi\n" : "```\n");
}

static void cell(const char *before, const char *text, const char *after) {
  printf("%s", before);
  put(text, strlen(text));
  printf("%s", after);
}

/* A name, as code. */
static void name_cell(const char *name) { cell(man ? ".TP\n.B " : "| `", name, man ? "\n" : "` | "); }

static void define(const char *name, const char *meaning) {
  name_cell(name);
  cell("", meaning, man ? "\n" : " |\n");
}

static void define_head(const char *first, const char *second) {
  if (!man) printf("\n| %s | %s |\n|---|---|\n", first, second);
}

/* ---- options ---- */

static void option(const option_row *row) {
  char room[128], head[140];
  const char letter[] = {'-', row->letter, ',', ' ', '\0'};
  const char *const deflt = row->required ? "required" : options_default(row);
  snprintf(head, sizeof head, "%s%s", row->letter ? letter : "", options_head(row, room, sizeof room));
  name_cell(head);
  if (man) cell("", row->help, "\n");
  cell(man ? "[" : "", options_unit(row, room, sizeof room), !man ? " | " : row->required ? "; " : "; default: ");
  cell("", deflt, man ? "]\n" : " | ");
  if (!man) cell("", row->help, " |\n");
}

static void group(const char *name) {
  if (man) printf(".PP\n.I %s\n", name);
  else printf("\n**%s**\n\n| option | value | default | meaning |\n|---|---|---|---|\n", name);
}

static void print_table(const option_table *table) {
  heading("convoy ", table->verb);
  printf(man ? ".B convoy %s\n" : "\n`convoy %s ", table->verb);
  if (man) put(table->usage, strlen(table->usage));
  else printf("%s`\n", table->usage);
  printf(man ? "\n.PP\n" : "\n");
  paragraphs(table->about);
  if (table->basics) group("Basic options");
  for (int i = 0; table->basics && i < table->n_rows; i++)
    if (options_is_basic(table, &table->rows[i])) option(&table->rows[i]);
  for (int i = 0; i < table->n_rows; i++) {
    const option_row *const row = &table->rows[i];
    const char *const title = options_heading(table, i);
    if (title) group(title);
    if (row->kind != OPTION_GROUP && row->kind != OPTION_REFUSED && !options_is_basic(table, row)) option(row);
  }
  if (!table->after) return;
  printf(man ? ".PP\n" : "\n");
  paragraphs(table->after);
}

/* ---- subcommands ---- */

static void print_words(const subcommand_list *list) {
  if (list->verb) heading("convoy ", list->verb);
  printf(man ? "" : "\n");
  paragraphs(list->about);
  define_head(list->kind, "does");
  for (int i = 0; i < list->n_rows; i++) define(list->rows[i].name, list->rows[i].help);
  printf(man ? ".PP\n" : "\n");
  paragraphs(list->after);
  if (man && !list->verb) heading("", "VERBS");
  for (int i = 0; i < list->n_rows; i++) {
    char help[] = "--help", *args[] = {(char *)list->rows[i].name, help, NULL};
    (void)list->rows[i].run(2, args);
  }
}

static const char *const codes[][2] = {
    {"0", "done"},
    {"1", "a device, a file or a test failed"},
    {"2", "wrong usage; the message has the accepted values"},
    {"130", "interrupted; the current step was finished and the state saved where possible"}};

bool reference_print(const subcommand_list *verbs, const char *how) {
#define ENV_ROW(symbol, name, whom, loads, meaning) {name, #whom, meaning},
  static const char *const variables[][3] = {CVY_ENV_MAP(ENV_ROW)};
  man = strcmp(how, "--man") == 0;
  if (!man && strcmp(how, "--markdown") != 0) return false;
  options_help_as(print_table);
  subcommands_help_as(print_words);
  if (man)
    printf(
        ".\\\" made by: convoy help --man\n.TH CONVOY 1 \"\" \"Convoy %s\" \"User Commands\"\n.SH NAME\n"
        "convoy \\- train convolutional networks on all OpenCL devices of a machine\n.SH SYNOPSIS\n.B convoy\n"
        ".I VERB\n[options]\n.SH DESCRIPTION\n",
        cvy_version());
  else printf("<!-- made by: convoy help --markdown -->\n# Reference\n");
  print_words(verbs);
  heading("", man ? "EXIT STATUS" : "Exit status");
  define_head("code", "means");
  for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) define(codes[i][0], codes[i][1]);
  heading("", man ? "ENVIRONMENT" : "Environment");
  define_head("variable", "means");
  for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++)
    if (strcmp(variables[i][1], "KNOB") != 0) define(variables[i][0], variables[i][2]);
  return true;
}
