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
