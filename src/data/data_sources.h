/* SPDX-License-Identifier: MIT
 * The table of sources: a row for each kind of data, in the file that reads it. */
#ifndef CVY_DATA_DATA_SOURCES_H
#define CVY_DATA_DATA_SOURCES_H

#include "src/data/dataset.h"

extern const data_source data_fashion_mnist; /* [idx_set.c] */
extern const data_source data_idx;           /* [idx_set.c] */
extern const data_source data_cifar;         /* [cifar.c] */
extern const data_source data_pictures;      /* [picture_set.c] any folder with folders */
extern const data_source data_synthetic;     /* [synthetic.c] */

/* "emnist-letters" of "emnist-letters-train-images-idx3-ubyte[.gz]": the files of FOLDER/emnist-letters are a set.
 * False: the name is another, or `out` is too small. [idx_set.c] */
bool data_idx_split(const char *name, char *out, size_t out_bytes);

/* "fashion-mnist", "synthetic:100"; NULL: the text is no name of a source. */
const data_source *data_source_of_name(const char *spec);
/* The source whose files are in the folder, by their names; NULL: those of none. */
const data_source *data_source_of_files(const char *dir);

#endif
