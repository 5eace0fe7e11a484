/* SPDX-License-Identifier: MIT */
#include "tools/program/options/options.h"

#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "convoy/team.h"
#include "src/base/text.h"
#include "tools/program/program_name.h"

enum { HELP_COLUMN = 28, HELP_WIDTH = 80, CODE_FIRST = 1000, MOST_CHANNELS_IN_FRONT = 4 };

int options_error(const char *verb, const char *format, ...) {
  va_list args;
  char text[8192], plain[8192];
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  cvy_plain_copy(text, "\n\t", plain, sizeof plain);
  fprintf(stderr, "convoy%s%s: %s\n", verb ? " " : "", verb ? verb : "", plain);
  fprintf(stderr, "Help: %s%s%s --help\n", program_name(), verb ? " " : "", verb ? verb : "");
  return EXIT_USAGE;
}

bool parse_list(const char *text, bool whole, number_list *out) {
  number_list list = {0};
  for (const char *at = text;;) {
    const size_t length = strcspn(at, ",");
    char item[40];
    int64_t number;
    if (length >= sizeof item || list.n == NUMBER_LIST_MAX) return false;
    memcpy(item, at, length);
    item[length] = '\0';
    if (whole) {
      if (!cvy_parse_int(item, 0, INT32_MAX, &number)) return false;
      list.values[list.n] = (double)number;
    } else if (!cvy_parse_float(item, 0, 1e30, &list.values[list.n])) {
      return false;
    }
    list.n++;
    if (at[length] == '\0') break;
    at += length + 1;
  }
  *out = list;
  return true;
}

const char *options_parse_shares(const char *text, void *target) {
  shares_option *const shares = target;
  shares->text = text;
  return parse_list(text, true, &shares->list) ? NULL
                                               : "expected whole numbers N1,N2,... of 0 or more: images of a batch for "
                                                 "each device";
}

/* Index of `text` in "a|b|c", -1 if it is not in it. */
static int choice_find(const char *choices, const char *text) {
  int position = 0;
  for (const char *at = choices;; position++) {
    const size_t length = strcspn(at, "|");
    if (length == strlen(text) && strncmp(at, text, length) == 0) return position;
    if (at[length] == '\0') return -1;
    at += length + 1;
  }
}

static void choice_list(const char *choices, char *out, size_t out_bytes) {
  size_t used = 0;
  for (const char *at = choices; *at && used + 8 < out_bytes; at++) {
    if (*at != '|') out[used++] = *at;
    else used += (size_t)snprintf(out + used, out_bytes - used, "%s", strchr(at + 1, '|') ? ", " : " or ");
  }
  out[used] = '\0';
}

/* Shown by the help if a row has none. */
static const struct {
  const char *value, *unit, *absent;
} usual[] = {[OPTION_FLAG] = {NULL, "switch", "off"},
             [OPTION_INT] = {"N", "", "none"},
             [OPTION_REAL] = {"X", "", "none"},
             [OPTION_TEXT] = {"F", "", "none"},
             [OPTION_SINK] = {"F", "file, - is stdout", "none"},
             [OPTION_CHOICE] = {"HOW", "", "none"},
             [OPTION_PARSE] = {NULL, "", "none"}};

static const char *value_of(const option_row *row) { return row->value ? row->value : usual[row->kind].value; }

const char *options_unit(const option_row *row, char *room, size_t room_bytes) {
  if (row->unit || row->kind != OPTION_CHOICE) return row->unit ? row->unit : usual[row->kind].unit;
  choice_list(row->choices, room, room_bytes);
  return room;
}

/* Stores the value; false with the reason in `wrong`. */
static bool value_set(const option_row *row, const char *text, void *target, char *wrong, size_t wrong_bytes) {
  void *const field = (char *)target + row->offset;
  wrong[0] = '\0';
  switch (row->kind) {
    case OPTION_FLAG: *(bool *)field = true; return true;
    case OPTION_INT:
      if (cvy_parse_int(text, (int64_t)row->range.lo, (int64_t)row->range.hi, field)) return true;
      if (row->range.hi >= 9e18)
        snprintf(wrong, wrong_bytes, "expected a whole number from %.0f to %g (%s)", row->range.lo, row->range.hi,
                 row->unit);
      else
        snprintf(wrong, wrong_bytes, "expected a whole number from %.0f to %.0f (%s)", row->range.lo, row->range.hi,
                 row->unit);
      return false;
    case OPTION_REAL:
      if (cvy_parse_float(text, row->range.lo, row->range.hi, field)) return true;
      if (row->expected) snprintf(wrong, wrong_bytes, "expected %s (%s)", row->expected, row->unit);
      else
        snprintf(wrong, wrong_bytes, "expected a number from %g to %g (%s)", row->range.lo, row->range.hi, row->unit);
      return false;
    case OPTION_TEXT:
    case OPTION_SINK:
      if (*text == '\0') {
        char room[128];
        snprintf(wrong, wrong_bytes, "the value is empty; expected a %s", options_unit(row, room, sizeof room));
        return false;
      }
      *(const char **)field = text;
      return true;
    case OPTION_CHOICE: {
      const int position = choice_find(row->choices, text);
      if (position >= 0) {
        *(int *)field = position;
        return true;
      }
      char list[128];
      choice_list(row->choices, list, sizeof list);
      snprintf(wrong, wrong_bytes, "expected %s", list);
      return false;
    }
    case OPTION_PARSE: {
      const char *const reason = row->parse(text, field);
      if (reason) snprintf(wrong, wrong_bytes, "%s", reason);
      return reason == NULL;
    }
    case OPTION_REFUSED: snprintf(wrong, wrong_bytes, "%s", row->help); return false;
    case OPTION_GROUP: break;
  }
  return false;
}

/* Paragraphs filled up to HELP_WIDTH; a line that begins with a blank is not changed. */
static void help_paragraphs(const char *text) {
  int column = 0;
  while (*text) {
    const int line = (int)strcspn(text, "\n");
    if (line == 0 || *text == ' ') {
      printf("%s%.*s\n", column ? "\n" : "", line, text);
      column = 0;
      text += line + (text[line] == '\n');
      continue;
    }
    const int length = (int)strcspn(text, " \n");
    if (column > 0 && column + 1 + length > HELP_WIDTH) {
      printf("\n");
      column = 0;
    }
    column += printf("%s%.*s", column ? " " : "", length, text);
    text += length;
    while (*text == ' ') text++;
    if (*text == '\n') text++;
  }
  if (column) printf("\n");
}

/* Words of `text` from column HELP_COLUMN on, broken before HELP_WIDTH; `column` is where the cursor is. */
static void help_text(const char *text, int column) {
  bool first = true;
  if (column >= HELP_COLUMN) {
    printf("\n");
    column = 0;
  }
  while (*text) {
    const int length = (int)strcspn(text, " ");
    if (!first && column + 1 + length > HELP_WIDTH) {
      printf("\n");
      column = 0;
      first = true;
    }
    if (first) {
      printf("%*s", HELP_COLUMN - column, "");
      column = HELP_COLUMN;
    } else {
      printf(" ");
      column++;
    }
    printf("%.*s", length, text);
    column += length;
    first = false;
    text += length;
    while (*text == ' ') text++;
  }
  printf("\n");
}

static bool help_is_all;

bool options_help_only(void) { return help_is_all; }

int options_help_done(void) {
  help_is_all = true;
  return EXIT_DONE;
}

const char *options_head(const option_row *row, char *room, size_t room_bytes) {
  const char *const value = value_of(row);
  const char *const format = row->kind == OPTION_SINK ? "--%s [%s]" : value ? "--%s %s" : "--%s";
  snprintf(room, room_bytes, format, row->name, value);
  return room;
}

const char *options_default(const option_row *row) {
  return row->deflt ? row->deflt : row->absent ? row->absent : usual[row->kind].absent;
}

static void help_row(const option_row *row) {
  char text[512], room[128];
  const char before[] = {'-', row->letter, ',', ' ', '\0'};
  const int column = printf("  %s%s", row->letter ? before : "    ", options_head(row, room, sizeof room));
  const char *const unit = options_unit(row, room, sizeof room);
  if (row->required) snprintf(text, sizeof text, "%s [%s; required]", row->help, unit);
  else snprintf(text, sizeof text, "%s [%s; default: %s]", row->help, unit, options_default(row));
  help_text(text, column);
}

bool options_is_basic(const option_table *table, const option_row *row) {
  for (const char *const *name = table->basics; name && *name; name++)
    if (row->kind != OPTION_GROUP && strcmp(*name, row->name) == 0) return true;
  return false;
}

const char *options_heading(const option_table *table, int i) {
  if (table->rows[i].kind == OPTION_GROUP) return table->rows[i].help;
  return i == 0 ? "Options" : NULL;
}

static void help_after(const option_table *table) {
  if (!table->after) return;
  printf("\n");
  help_paragraphs(table->after);
}

static void (*help_printer)(const option_table *table);

void options_help_as(void (*print)(const option_table *table)) { help_printer = print; }

static void help_print(const option_table *table) {
  if (help_printer) {
    help_printer(table);
    return;
  }
  printf("usage: convoy %s %s\n\n", table->verb, table->usage);
  help_paragraphs(table->about);
  if (table->basics) {
    printf("\nBasic options\n");
    for (int i = 0; i < table->n_rows; i++)
      if (options_is_basic(table, &table->rows[i])) help_row(&table->rows[i]);
    help_after(table);
    printf("\nOther options\n");
  }
  for (int i = 0; i < table->n_rows; i++) {
    const option_row *const row = &table->rows[i];
    const char *const heading = options_heading(table, i);
    if (heading) printf("\n%s\n", heading);
    if (row->kind != OPTION_GROUP && row->kind != OPTION_REFUSED && !options_is_basic(table, row)) help_row(row);
  }
  printf("  -h, --help");
  help_text("print this text [switch; default: off]", 12);
  if (!table->basics) help_after(table);
  program_name_note(stdout);
}

/* Edits between two words (Levenshtein), cut at 30 characters. */
static int word_distance(const char *a, const char *b) {
  int row[32];
  const int n = (int)strnlen(b, 30);
  for (int j = 0; j <= n; j++) row[j] = j;
  for (int i = 1; a[i - 1] && i <= 30; i++) {
    int diagonal = row[0];
    row[0] = i;
    for (int j = 1; j <= n; j++) {
      const int change = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      const int shift = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
      row[j] = change < shift ? change : shift;
    }
  }
  return row[n];
}

const char *options_nearest(const char *word, const char *const *names, int n) {
  const char *start = NULL, *nearest = NULL;
  int starts = 0, best = 3;
  for (int i = 0; i < n; i++) {
    const int distance = word_distance(word, names[i]);
    if (strncmp(names[i], word, strlen(word)) == 0 && starts++ == 0) start = names[i];
    if (distance < best && 2 * distance <= (int)strlen(names[i])) {
      best = distance;
      nearest = names[i];
    }
  }
  return starts == 1 ? start : nearest;
}

/* Names of options in other training programs, and the names here. */
static const char *other_name(const char *name) {
  static const struct {
    const char *name, *others;
  } names[] = {
      {"batch", "batch-size|bs|train-batch-size"},
      {"checkpoint", "ckpt"},
      {"classes", "num-classes"},
      {"clip-norm", "clip-grad|clip-grad-norm|grad-clip"},
      {"data", "data-path|dataset"},
      {"devices", "cuda|device-ids|gpu|gpu-ids|gpus|num-gpus"},
      {"epochs", "max-epochs|n-epochs|num-epochs|num-train-epochs"},
      {"init-from", "finetune|pretrained|weights"},
      {"lr", "base-lr|initial-lr|learning-rate"},
      {"lr-schedule", "scheduler"},
      {"max-steps", "iterations|iters|max-iter|steps"},
      {"model", "arch|architecture|backbone|net|network"},
      {"node", "rank"},
      {"optimizer", "opt"},
      {"patience", "early-stopping"},
      {"resume", "resume-from|resume-from-checkpoint"},
      {"save", "out|output|output-dir|save-dir|save-model|save-path"},
      {"seed", "random-seed"},
      {"size", "image-size|img-size|imgsz"},
      {"warmup", "warmup-epochs"},
      {"weight-decay", "decay|l2|wd"},
  };
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (choice_find(names[i].others, name) >= 0) return names[i].name;
  return NULL;
}

/* Explains why getopt_long did not know `word` ("--ephocs=3" or "-x"). */
static int unknown_option(const option_table *table, const char *word, int letter) {
  char name[64] = "", dashed[sizeof name];
  if (strncmp(word, "--", 2) != 0) return options_error(table->verb, "-%c: no such option", letter);
  snprintf(name, sizeof name, "%.*s", (int)strcspn(word + 2, "="), word + 2);
  const char *nearest = NULL, *other = NULL;
  int best = 3, starts = 0;
  for (int i = 0; i < table->n_rows; i++) {
    const option_row *const row = &table->rows[i];
    if (row->kind == OPTION_GROUP) continue;
    if (strcmp(row->name, name) == 0 && row->kind == OPTION_FLAG) {
      return options_error(table->verb, "%s: --%s is a switch and takes no value", word, name);
    }
    if (strncmp(row->name, name, strlen(name)) == 0) {
      if (starts++ == 0) nearest = row->name;
      else other = row->name;
    }
  }
  for (size_t i = 0; i < sizeof name; i++) dashed[i] = name[i] == '_' ? '-' : name[i];
  const char *const known = other_name(dashed);
  if (starts > 1) return options_error(table->verb, "--%s: ambiguous; expected --%s or --%s", name, nearest, other);
  for (int i = 0; i < table->n_rows; i++) {
    const option_row *const row = &table->rows[i];
    if (row->kind == OPTION_GROUP || row->kind == OPTION_REFUSED) continue;
    const bool is_known = known && strcmp(known, row->name) == 0;
    const int distance = is_known ? 0 : word_distance(dashed, row->name);
    const size_t length = strlen(row->name) < strlen(name) ? strlen(row->name) : strlen(name);
    const int most = length > 4 ? 2 : length > 1 ? 1 : 0; /* in four letters, two edits make any word of another */
    if (distance < best && distance <= most) {
      best = distance;
      nearest = row->name;
    }
  }
  if (nearest) return options_error(table->verb, "--%s: no such option; did you mean --%s?", name, nearest);
  return options_error(table->verb, "--%s: no such option", name);
}

static const option_row *row_by_letter(const option_table *table, int letter) {
  for (int i = 0; i < table->n_rows; i++) {
    if (table->rows[i].kind != OPTION_GROUP && table->rows[i].letter == letter) return &table->rows[i];
  }
  return NULL;
}

static int values_from_defaults(const option_table *table, void *target) {
  char wrong[256];
  for (int i = 0; i < table->n_rows; i++) {
    const option_row *const row = &table->rows[i];
    if (row->deflt && row->kind != OPTION_REFUSED && !value_set(row, row->deflt, target, wrong, sizeof wrong)) {
      return options_error(table->verb, "the default %s of --%s is wrong: %s (a mistake of this program)", row->deflt,
                           row->name, wrong);
    }
  }
  return OPTIONS_GO_ON;
}

static const char *texts[OPTIONS_MAX]; /* of the table parsed last, by row */

static int row_of(const option_table *table, const char *name) {
  for (int i = 0; i < table->n_rows; i++)
    if (table->rows[i].kind != OPTION_GROUP && strcmp(table->rows[i].name, name) == 0) return i;
  return -1;
}

static bool set_has(const option_set *set, int row) { return set->bits[row / 64] >> row % 64 & 1; }
static void set_add(option_set *set, int row) { set->bits[row / 64] |= UINT64_C(1) << row % 64; }

bool options_take(const option_table *table, option_set *given, const char *name, const char *text, void *target) {
  char wrong[256];
  const int row = row_of(table, name);
  if (row < 0 || set_has(given, row) || !value_set(&table->rows[row], text, target, wrong, sizeof wrong)) return false;
  set_add(given, row);
  texts[row] = text;
  return true;
}

const char *options_text(const option_table *table, const char *name) {
  const int row = row_of(table, name);
  return row < 0 ? NULL : texts[row];
}

static char **operands;
static int n_operands;

int options_parse(const option_table *table, int argc, char **argv, void *target, option_set *given) {
  struct option longs[OPTIONS_MAX + 2];
  char shorts[2 * OPTIONS_MAX + 4] = ":h", wrong[256];
  int n = 0, code;
  option_set seen = {0};
  memset(longs, 0, sizeof longs);
  for (int i = 0; i < table->n_rows && n < OPTIONS_MAX; i++) {
    const option_row *const row = &table->rows[i];
    if (row->kind == OPTION_GROUP) continue;
    const int has_arg = row->kind == OPTION_FLAG   ? no_argument
                        : row->kind == OPTION_SINK ? optional_argument
                                                   : required_argument;
    longs[n++] = (struct option){.name = row->name, .has_arg = has_arg, .val = CODE_FIRST + i};
    if (row->letter) {
      const size_t used = strlen(shorts);
      snprintf(shorts + used, sizeof shorts - used, "%c%s", row->letter, row->kind == OPTION_FLAG ? "" : ":");
    }
  }
  longs[n] = (struct option){.name = "help", .has_arg = no_argument, .val = 'h'};
  memset(texts, 0, sizeof texts);
  const int defaults = values_from_defaults(table, target);
  if (defaults != OPTIONS_GO_ON) return defaults;

  opterr = 0;
  optind = 1;
  while ((code = getopt_long(argc, argv, shorts, longs, NULL)) != -1) {
    if (code == 'h') {
      help_print(table);
      return options_help_done();
    }
    if (code == '?') {
      if (optopt >= CODE_FIRST) return unknown_option(table, argv[optind - 1], 0); /* a switch with a value */
      return unknown_option(table, optopt ? "-" : argv[optind - 1], optopt);
    }
    const option_row *row = code >= CODE_FIRST ? &table->rows[code - CODE_FIRST] : row_by_letter(table, code);
    if (code == ':') {
      row = optopt >= CODE_FIRST ? &table->rows[optopt - CODE_FIRST] : row_by_letter(table, optopt);
      if (row->kind == OPTION_REFUSED) return options_error(table->verb, "--%s: %s", row->name, row->help);
      char room[128];
      return options_error(table->verb, "--%s: the value is missing (%s: %s)", row->name, value_of(row),
                           options_unit(row, room, sizeof room));
    }
    const char *text = optarg;
    if (row->kind == OPTION_SINK && !text) {
      const bool next = optind < argc && (argv[optind][0] != '-' || argv[optind][1] == '\0');
      text = next ? argv[optind++] : "-";
    }
    if (!value_set(row, text ? text : "", target, wrong, sizeof wrong)) {
      return options_error(table->verb, "--%s %s: %s", row->name, text && *text ? text : "''", wrong);
    }
    set_add(&seen, (int)(row - table->rows));
    texts[row - table->rows] = text ? text : "";
  }
  n_operands = argc - optind;
  operands = argv + optind;
  if (n_operands > table->most_operands)
    return options_error(table->verb, "'%s': expected an option (--name value)", operands[table->most_operands]);
  if (n_operands < table->least_operands) return options_error(table->verb, "%s is missing", table->operand);
  if (table->fill) {
    const int filled = table->fill(target, &seen);
    if (filled != OPTIONS_GO_ON) return filled;
  }
  for (int i = 0; i < table->n_rows; i++) {
    const option_row *const row = &table->rows[i];
    if (row->required && !set_has(&seen, i)) {
      return options_error(table->verb, "--%s %s is missing: %s", row->name, value_of(row), row->help);
    }
  }
  if (given) *given = seen;
  return OPTIONS_GO_ON;
}

const char *const *options_operands(int *n) {
  *n = n_operands;
  return (const char *const *)operands;
}

bool options_given(const option_table *table, option_set given, const char *name) {
  const int row = row_of(table, name);
  return row >= 0 && set_has(&given, row);
}

int options_check_data_dir(const char *verb, const char *data, const char *data_dir) {
  if (!data_dir || strcmp(data, "fashion-mnist") == 0) return OPTIONS_GO_ON;
  return options_error(verb,
                       "--data-dir %s with --data %s: --data-dir is only for fashion-mnist; expected the folder with "
                       "idx files or pictures as --data",
                       data_dir, data);
}

const char *options_parse_size(const char *text, void *target) {
  static const char expected[] = "expected N, the shorter side, or HxW, height and width: 1 to 65536 each";
  size_option *const size = target;
  char height[16];
  int64_t h = -1, w;
  const char *const cross = strchr(text, 'x');
  if (cross) {
    if ((size_t)(cross - text) >= sizeof height) return expected;
    snprintf(height, sizeof height, "%.*s", (int)(cross - text), text);
    if (!cvy_parse_int(height, 1, 65536, &h)) return expected;
  }
  if (!cvy_parse_int(cross ? cross + 1 : text, 1, 65536, &w)) return expected;
  *size = (size_option){.h = (int)h, .w = (int)w, .text = text};
  return NULL;
}

const char *options_parse_conv_algo(const char *text, void *target) {
  *(const char **)target = text;
  return cvy_conv_algo_wrong(text);
}

const char *options_parse_input(const char *text, void *target) {
  static const char expected[] =
      "expected HxWxC: height, width and channels of the images, such as 28x28x1; or CxHxW with up to 4 channels, such "
      "as 3x32x32";
  int64_t *const size = target;
  for (int i = 0; i < 3; i++) {
    char number[16];
    const size_t length = strcspn(text, "x");
    if (length >= sizeof number || (text[length] == 'x') != (i < 2)) return expected;
    snprintf(number, sizeof number, "%.*s", (int)length, text);
    if (!cvy_parse_int(number, 1, 32768, &size[i])) return expected;
    text += length + 1;
  }
  /* a picture has few channels and many columns: this must be PyTorch's order */
  if (size[0] <= MOST_CHANNELS_IN_FRONT && size[2] > MOST_CHANNELS_IN_FRONT) {
    const int64_t channels = size[0];
    size[0] = size[1], size[1] = size[2], size[2] = channels;
  }
  return NULL;
}
