/* SPDX-License-Identifier: MIT
 * The names of folders: parts of a set ("train", "Training", "seg_train", "validation_set"), folders that hold no
 * pictures of their own (hidden ones, those of systems and programs), and all others, which are classes; names that
 * look alike. Pure. */
#ifndef CVY_DATA_FOLDER_NAMES_H
#define CVY_DATA_FOLDER_NAMES_H

#include <stdbool.h>

enum { CVY_SET_OF_TRAIN, CVY_SET_OF_VAL, CVY_SET_OF_TEST, CVY_SETS };

/* The set that a folder of this name holds (CVY_SET_OF_TRAIN, …), or -1: its one word is that of a set, next to words
 * that only say so again ("set", "data", "images", "seg", numbers). Capitals do not matter. */
int cvy_folder_set_of(const char *name);
/* True if a word of the name is that of a part of a set: also "my_train_2", "public_test", "holdout". */
bool cvy_folder_sounds_like_part(const char *name);
/* True for names that begin with a dot (.git, .ipynb_checkpoints) and for folders that systems make (__MACOSX, @eaDir,
 * lost+found, …). */
bool cvy_folder_is_hidden(const char *name);
/* True if a test set's one folder of this name holds pictures without labels: words that say only that it has pictures
 * or a part of the set ("images", "test"), or that their class is not known ("unknown", "unlabeled"). */
bool cvy_folder_says_no_class(const char *name);
/* True if both names may look the same and their bytes differ: where one has a single character the other has a letter
 * with the marks behind it (Unicode's forms NFC and NFD), or a Korean syllable's parts. Which letter and mark make the
 * character is not looked up, but for Korean. */
bool cvy_folder_names_look_alike(const char *a, const char *b);

#endif
