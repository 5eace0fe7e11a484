/* SPDX-License-Identifier: MIT
 * Data sets below the folder that a user names: torchvision's root (MNIST/raw, cifar-10-batches-bin, …), a folder above
 * train/ and val/, EMNIST's splits. And CIFAR as Python's pickles, which Convoy does not read. */
#ifndef CVY_DATA_DATA_PLACES_H
#define CVY_DATA_DATA_PLACES_H

#include "src/base/failure.h"

/* Call for a folder without idx files or CIFAR's. *out: the only data set in it or in its folders (cvy_free), when
 * nothing else there may be one; NULL: `dir` itself is the folder to read. CVY_E_FORMAT: several data sets, or one
 * beside folders that may be classes (the message names them); pickles alone (the message has the command that helps).
 * CVY_E_MEMORY. */
cvy_status data_find_place(const char *dir, char **out);

#endif
