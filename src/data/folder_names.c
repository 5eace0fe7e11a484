/* SPDX-License-Identifier: MIT */
#include "src/data/folder_names.h"

#include <ctype.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

enum { NO_PART = -1, OTHER_PART = CVY_SETS, REPEATS = CVY_SETS + 1 };

static const struct {
  const char *word;
  int part;
} words[] = {
    {"train", CVY_SET_OF_TRAIN},
    {"training", CVY_SET_OF_TRAIN},
    {"trn", CVY_SET_OF_TRAIN},
    {"val", CVY_SET_OF_VAL},
    {"valid", CVY_SET_OF_VAL},
    {"validation", CVY_SET_OF_VAL},
    {"validate", CVY_SET_OF_VAL},
    {"dev", CVY_SET_OF_VAL},
    {"test", CVY_SET_OF_TEST},
    {"testing", CVY_SET_OF_TEST},
    {"tst", CVY_SET_OF_TEST},
    {"eval", OTHER_PART},
    {"evaluation", OTHER_PART},
    {"holdout", OTHER_PART},
    {"pred", OTHER_PART},
    {"predict", OTHER_PART},
    {"prediction", OTHER_PART},
    {"set", REPEATS},
    {"data", REPEATS},
    {"dataset", REPEATS},
    {"seg", REPEATS},
    {"split", REPEATS},
    {"image", REPEATS},
    {"images", REPEATS},
    {"img", REPEATS},
    {"imgs", REPEATS},
    {"picture", REPEATS},
    {"pictures", REPEATS},
    {"pics", REPEATS},
    {"photos", REPEATS},
    {"folder", REPEATS},
};
enum { N_WORDS = sizeof words / sizeof *words };

static int part_of(const char *word, size_t n) {
  for (int i = 0; i < N_WORDS; i++)
    if (strlen(words[i].word) == n && strncasecmp(words[i].word, word, n) == 0) return words[i].part;
  return NO_PART;
}

/* "trainset", "testdata": the word of a part with one behind it that says so again. */
static int part_of_word(const char *word, size_t n) {
  int part = part_of(word, n);
  for (size_t k = n; k-- > 3 && part == NO_PART;)
    if (part_of(word + k, n - k) == REPEATS && part_of(word, k) != REPEATS) part = part_of(word, k);
  return part;
}

/* The next word from *at on, its length in *n; NULL: there is none. Words end where capitals begin and at all but
 * letters. */
static const char *next_word(const char *at, size_t *n) {
  while (*at && !isalpha((unsigned char)*at)) at++;
  for (*n = 0; isalpha((unsigned char)at[*n]); ++*n)
    if (*n && isupper((unsigned char)at[*n]) && islower((unsigned char)at[*n - 1])) break;
  return *n ? at : NULL;
}

int cvy_folder_set_of(const char *name) {
  int set = NO_PART;
  size_t n;
  for (const char *word = name; (word = next_word(word, &n)); word += n) {
    const int part = part_of_word(word, n);
    if (part == REPEATS) continue;
    if (part == NO_PART || part == OTHER_PART || set != NO_PART) return NO_PART;
    set = part;
  }
  return set;
}

bool cvy_folder_sounds_like_part(const char *name) {
  size_t n;
  for (const char *word = name; (word = next_word(word, &n)); word += n) {
    const int part = part_of_word(word, n);
    if (part != NO_PART && part != REPEATS) return true;
  }
  return false;
}

bool cvy_folder_is_hidden(const char *name) {
  static const char *const of_systems[] = {"__MACOSX",  "__pycache__",  "@eaDir",     "#recycle",
                                           "#snapshot", "$RECYCLE.BIN", "lost+found", "System Volume Information"};
  if (name[0] == '.') return true;
  for (size_t i = 0; i < sizeof of_systems / sizeof *of_systems; i++)
    if (strcasecmp(name, of_systems[i]) == 0) return true;
  return false;
}

bool cvy_folder_says_no_class(const char *name) {
  static const char *const unknown[] = {"all", "none", "nolabel", "unclassified", "unknown", "unlabeled", "unlabelled"};
  for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
    if (strcasecmp(name, unknown[i]) == 0) return true;
  size_t n;
  bool has_word = false;
  for (const char *word = name; (word = next_word(word, &n)); word += n) {
    if (part_of_word(word, n) == NO_PART) return false;
    has_word = true;
  }
  return has_word;
}

/* ---- names that look alike ---- */

enum {
  SYLLABLES = 0xac00,
  N_SYLLABLES = 11172,
  LEADS = 0x1100,
  VOWELS = 0x1161,
  N_VOWELS = 21,
  TAILS = 0x11a7,
  N_TAILS = 28
};

/* The next character of *at, which goes behind it; 0: the end. A byte that is no UTF-8 is a character by itself. */
static unsigned next_character(const char **at) {
  const unsigned char *const p = (const unsigned char *)*at;
  if (!*p) return 0;
  const int more = *p >= 0xf0 ? 3 : *p >= 0xe0 ? 2 : *p >= 0xc2 ? 1 : 0;
  unsigned c = more ? *p & (0x3f >> more) : *p;
  for (int i = 1; i <= more; i++) {
    if ((p[i] & 0xc0) != 0x80) {
      ++*at;
      return 0x110000 + *p;
    }
    c = c << 6 | (p[i] & 0x3f);
  }
  *at += 1 + more;
  return more || *p < 0x80 ? c : 0x110000u + *p;
}

static bool is_mark(unsigned c) {
  return (c >= 0x300 && c <= 0x36f) || (c >= 0x591 && c <= 0x5c7) || (c >= 0x64b && c <= 0x65f) || c == 0x93c ||
         c == 0x3099 || c == 0x309a;
}

/* A letter, how many marks are behind it, and of a Korean syllable in parts the syllable. */
typedef struct letter {
  unsigned base;
  int marks;
} letter;

static letter next_letter(const char **at) {
  letter l = {next_character(at), 0};
  const char *behind = *at;
  const unsigned vowel = l.base >= LEADS && l.base < VOWELS ? next_character(&behind) - VOWELS : N_VOWELS;
  if (vowel < N_VOWELS) {
    l.base = SYLLABLES + ((l.base - LEADS) * N_VOWELS + vowel) * N_TAILS;
    *at = behind;
    const unsigned tail = next_character(&behind) - TAILS;
    if (tail > 0 && tail < N_TAILS) l.base += tail, *at = behind;
    return l;
  }
  behind = *at;
  while (l.base && is_mark(next_character(&behind))) l.marks++, *at = behind;
  return l;
}

bool cvy_folder_names_look_alike(const char *a, const char *b) {
  const bool differ = strcmp(a, b) != 0;
  for (letter x = {1, 0}, y = {1, 0}; x.base;) {
    x = next_letter(&a);
    y = next_letter(&b);
    if (x.base == y.base && x.marks == y.marks) continue;
    const letter whole = x.marks < y.marks ? x : y, apart = x.marks < y.marks ? y : x;
    if (whole.marks == apart.marks || whole.base == apart.base || whole.base < 0x80 || whole.base > 0xffff)
      return false;
  }
  return differ;
}
