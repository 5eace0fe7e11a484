/* SPDX-License-Identifier: MIT
 * Command lines from tables: one row per option, over getopt_long. The default of a row is a text. The parser reads it
 * like an option of the user, and the help shows it, so the two cannot differ. */
#ifndef CVY_TOOLS_PROGRAM_OPTIONS_OPTIONS_H
#define CVY_TOOLS_PROGRAM_OPTIONS_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_INTERRUPTED = 130 };
enum { OPTIONS_GO_ON = -1, OPTIONS_MAX = 128, NUMBER_LIST_MAX = 1024 };

typedef struct number_list {
  int n;
  double values[NUMBER_LIST_MAX];
} number_list;
typedef struct shares_option {
  number_list list;
  const char *text;
} shares_option;

/* --size: cvy_data_params' size_h and size_w. */
typedef struct size_option {
  int h, w;
  const char *text;
} size_option;
/* Preprocessing of images; the rows are ROWS_IMAGES (option_rows.h). */
typedef struct image_options {
  size_option size;
  double val_split;
  bool gray, no_cache, strict;
  int png16, exif; /* PNG16_…, EXIF_… */
} image_options;
enum { PNG16_CLIP, PNG16_SCALE };
enum { EXIF_IGNORE, EXIF_ROTATE };
/* Rows of a table. */
typedef struct option_set {
  uint64_t bits[OPTIONS_MAX / 64];
} option_set;

typedef struct option_row option_row;
/* Stores the value of `text` at `target`. NULL, or the reason why not ("expected …"), static. */
typedef const char *(*option_parse_fn)(const char *text, void *target);

typedef enum option_kind {
  OPTION_GROUP,  /* a heading of the help: `help` */
  OPTION_FLAG,   /* bool: false, true if given */
  OPTION_INT,    /* int64_t in lo..hi */
  OPTION_REAL,   /* double in lo..hi */
  OPTION_TEXT,   /* const char *, borrowed from argv, not empty */
  OPTION_SINK,   /* the same; the value may be left out and is "-" (stdout) then */
  OPTION_CHOICE, /* int: position in the row's `choices` ("even|auto") */
  OPTION_PARSE,  /* by `parse` */
  OPTION_REFUSED /* an option of other verbs: refused with `help` as the reason; not in the help */
} option_kind;

struct option_row {
  option_kind kind;
  const char *name;   /* without "--" */
  char letter;        /* short form or 0 */
  size_t offset;      /* of the value in the struct that options_parse fills */
  const char *value;  /* its name in the help; NULL: the kind's (N, X, F, HOW) */
  const char *deflt;  /* default as text; NULL: the field stays zero and `absent` is shown */
  const char *absent; /* the help's text for an absent value; NULL: "off" for a flag, else "none" */
  const char *unit;   /* unit or kind of the value: "images", "file"; NULL: by the kind or `choices` */
  const char *help;
  struct {
    double lo, hi;
  } range;
  const char *expected; /* OPTION_REAL: a better text for the range than "from LO to HI"; or NULL */
  const char *choices;
  option_parse_fn parse;
  bool required;
};

/* Rows by kind, with what each kind needs: {OPT_INT("steps", FIELD(steps), "5", "steps", 1, 128, "help")}; other fields
 * may follow: {OPT_FLAG(…), .letter = 'q'}. FIELD: initializer of `offset`. */
#define OPT_GROUP(HELP) .kind = OPTION_GROUP, .help = HELP
#define OPT_FLAG(NAME, FIELD, HELP) .kind = OPTION_FLAG, .name = NAME, FIELD, .help = HELP
#define OPT_INT(NAME, FIELD, DEFAULT, UNIT, LO, HI, HELP) \
  .kind = OPTION_INT, .name = NAME, FIELD, .deflt = DEFAULT, .unit = UNIT, .range = {LO, HI}, .help = HELP
#define OPT_REAL(NAME, FIELD, DEFAULT, UNIT, LO, HI, HELP) \
  .kind = OPTION_REAL, .name = NAME, FIELD, .deflt = DEFAULT, .unit = UNIT, .range = {LO, HI}, .help = HELP
#define OPT_TEXT(NAME, FIELD, UNIT, HELP) .kind = OPTION_TEXT, .name = NAME, FIELD, .unit = UNIT, .help = HELP
#define OPT_SINK(NAME, FIELD, UNIT, HELP) .kind = OPTION_SINK, .name = NAME, FIELD, .unit = UNIT, .help = HELP
#define OPT_CHOICE(NAME, FIELD, CHOICES, DEFAULT, HELP) \
  .kind = OPTION_CHOICE, .name = NAME, FIELD, .choices = CHOICES, .deflt = DEFAULT, .help = HELP
#define OPT_PARSE(NAME, FIELD, VALUE, UNIT, PARSE, HELP) \
  .kind = OPTION_PARSE, .name = NAME, FIELD, .value = VALUE, .unit = UNIT, .parse = PARSE, .help = HELP
#define OPT_REFUSED(NAME, WHY) .kind = OPTION_REFUSED, .name = NAME, .help = WHY

/* Of an option_table and of a subcommand_list. */
#define OPTION_ROWS(ROWS) .rows = (ROWS), .n_rows = sizeof(ROWS) / sizeof *(ROWS)

typedef struct option_table {
  const char *verb;          /* "train" */
  const char *usage;         /* rest of the usage line */
  const char *about;         /* a sentence or two under it */
  const char *after;         /* text at the end of the help, of its first part if it has two, or NULL */
  const char *const *basics; /* names of options in the help's first part, ended by NULL; NULL: one part */
  const option_row *rows;
  int n_rows;
  /* Operands: the name of one ("SRC"; NULL: not accepted), and their least number. */
  const char *operand;
  int least_operands, most_operands;
  /* Called after the command line is read and before required options are checked: may set options from elsewhere
   * (options_take). OPTIONS_GO_ON or an exit status. NULL: none. */
  int (*fill)(void *target, option_set *given);
} option_table;

/* Fills `target`. OPTIONS_GO_ON, or the exit status: 0 after --help (printed on stdout), 2 after an error (printed on
 * stderr). `given` (rows that were on the command line) may be NULL. */
int options_parse(const option_table *table, int argc, char **argv, void *target, option_set *given);
/* Sets an option that is not in *given to the value of `text` (borrowed), as the command line does; false if `text` is
 * wrong. */
bool options_take(const option_table *table, option_set *given, const char *name, const char *text, void *target);
/* The text of an option in the last options_parse or options_take, "" for a flag, NULL: its default; borrowed. */
const char *options_text(const option_table *table, const char *name);
/* The operands of the last options_parse; borrowed from argv. */
const char *const *options_operands(int *n);
bool options_given(const option_table *table, option_set given, const char *name);
/* Call after a help text, when the program prints nothing else; EXIT_DONE. A reader that closes the pipe (| head) is
 * not an error. */
int options_help_done(void);
bool options_help_only(void);
/* Sets the function by which --help prints a table, for a reference of all verbs (reference.h). */
void options_help_as(void (*print)(const option_table *table));
/* The help's text for the option and its value ("--json [F]"), for the kind of value (its unit, or the choices), and
 * for its default. Written to `room`, or static. */
const char *options_head(const option_row *row, char *room, size_t room_bytes);
const char *options_unit(const option_row *row, char *room, size_t room_bytes);
const char *options_default(const option_row *row);
/* True if the row is in the help's first part. */
bool options_is_basic(const option_table *table, const option_row *row);
/* The heading before row i: a group's, or that of rows before all groups; or NULL. */
const char *options_heading(const option_table *table, int i);
/* A suggestion for `word`: the only name that begins with it, else one within two edits; or NULL. */
const char *options_nearest(const char *word, const char *const *names, int n);
/* Prints "convoy VERB: message", and how to get help; returns EXIT_USAGE. */
int options_error(const char *verb, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* EXIT_USAGE, with the reason printed, if data_dir does not apply to `data`, else OPTIONS_GO_ON. */
int options_check_data_dir(const char *verb, const char *data, const char *data_dir);

/* For OPTION_PARSE with a size_option: "N", or "HxW". */
const char *options_parse_size(const char *text, void *target);
/* For OPTION_PARSE: const char * that is a list of convolution algorithms. */
const char *options_parse_conv_algo(const char *text, void *target);

/* For OPTION_PARSE with int64_t[3]: "32x32x3", height, width, channels. */
const char *options_parse_input(const char *text, void *target);

/* Numbers >= 0 separated by commas; `whole` refuses fractions. */
bool parse_list(const char *text, bool whole, number_list *out);
/* For OPTION_PARSE with a shares_option. */
const char *options_parse_shares(const char *text, void *target);

#endif
