/* SPDX-License-Identifier: MIT
 * The safetensors container: 8 bytes header length (little-endian), JSON header, data. Every name → dtype, shape,
 * [begin,end) in the data. https://huggingface.co/docs/safetensors: header at most 100 MB, begins with '{', offsets
 * cover the data without holes or overlaps. */
#ifndef CVY_BASE_SAFETENSORS_H
#define CVY_BASE_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "src/base/failure.h"

typedef struct cvy_st_tensor {
  char name[128];
  char dtype[8]; /* "F32", "I64", "U8", … */
  int rank;
  int64_t dims[8];
  const void *data; /* dense, little-endian; when read: borrowed from the file object, of any alignment */
  size_t size_bytes;
} cvy_st_tensor;

typedef struct cvy_st_file cvy_st_file;
/* Reads and checks the whole file; tensors are numbered in the order of their data. CVY_E_IO / CVY_E_FORMAT with path,
 * offset or name and value. Stricter than the format: names up to 127 bytes without control characters, rank up to 8.
 * Any thread; reading does not change objects. */
cvy_status cvy_st_open(const char *path, cvy_st_file **out);
/* The same with limits: refuses more than `most_tensors` tensors and files of more than most_bytes before it allocates
 * memory, CVY_E_FORMAT. cvy_st_open accepts 100,000 tensors and any size that the header describes. */
cvy_status cvy_st_open_limited(const char *path, size_t most_tensors, size_t most_bytes, cvy_st_file **out);
/* As cvy_st_open, but reads only the header: the tensors have no data. */
cvy_status cvy_st_open_header(const char *path, cvy_st_file **out);
void cvy_st_close(cvy_st_file **file);
int cvy_st_count(const cvy_st_file *file);
const cvy_st_tensor *cvy_st_get(const cvy_st_file *file, int i);
const cvy_st_tensor *cvy_st_find(const cvy_st_file *file, const char *name); /* NULL: missing */
/* Value of a key of __metadata__, NULL: missing. */
const char *cvy_st_metadata(const cvy_st_file *file, const char *key);
/* Writes tensors in the order given (the data begins at a multiple of 8 bytes), with n_meta key, value pairs as
 * __metadata__. Equal arguments give equal bytes. Writes as cvy_file_write. CVY_E_IO; CVY_E_ARGUMENT: equal or
 * bad names, unknown dtype, size that does not fit the shape. */
cvy_status cvy_st_write(const char *path, const cvy_st_tensor *tensors, int n, const char *const (*metadata)[2],
                        int n_meta);
/* The same for a name given by a user: writes as cvy_file_put. */
cvy_status cvy_st_put(const char *path, const cvy_st_tensor *tensors, int n, const char *const (*metadata)[2],
                      int n_meta);

#endif
