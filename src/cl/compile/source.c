/* SPDX-License-Identifier: MIT */
#include "src/cl/compile/source.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "src/base/env.h"
#include "src/base/file.h"
#include "src/base/mem.h"

enum { LONGEST_SOURCE = 16 << 20, MOST_INCLUDES = 64 };

typedef struct seen_files {
  char *names[MOST_INCLUDES];
  int n;
} seen_files;

/* The name in a line `#include "name"`, or false. */
static bool include_name(const char *line, size_t n, const char **name, size_t *name_bytes) {
  static const char start[] = "#include \"";
  const size_t skip = sizeof start - 1;
  if (n < skip + 2 || memcmp(line, start, skip) != 0 || line[n - 1] != '"') return false;
  *name = line + skip;
  *name_bytes = n - skip - 1;
  return !memchr(*name, '"', *name_bytes);
}

/* Templates, whose names end in _tmpl, come each time they are included. */
static bool is_template(const char *name, size_t name_bytes) {
  static const char end[] = "_tmpl.clh";
  const size_t bytes = sizeof end - 1;
  return name_bytes > bytes && !memcmp(name + name_bytes - bytes, end, bytes);
}

/* The same expansion as tools/generate/embed_cl.py: `name` is a path from `folder`, and the compiler gets its last
 * part. */
static cvy_status expand(const char *folder, const char *name, seen_files *seen, cvy_text *out) {
  cvy_status status = CVY_OK;
  char *data = NULL, *inner = NULL;
  size_t size;
  cvy_text path = {0};
  const char *const slash = strrchr(name, '/'), *const shown = slash ? slash + 1 : name;
  CVY_REQUIRE(seen->n < MOST_INCLUDES, CVY_E_FORMAT, "%s/%s: more than %d files include each other", folder, name,
              MOST_INCLUDES);
  seen->names[seen->n] = cvy_strdup(name);
  CVY_REQUIRE(seen->names[seen->n++], CVY_E_MEMORY, "no memory for the source of %s", name);
  cvy_text_add(&path, "%s/%s", folder, name);
  CVY_REQUIRE(!path.failed, CVY_E_MEMORY, "no memory for the source of %s", name);
  CVY_TRY(cvy_file_read(path.data, LONGEST_SOURCE, &data, &size));
  cvy_text_add(out, "#line 1 \"%s\"\n", shown);
  long number = 0;
  for (const char *line = data, *const end = data + size; line < end;) {
    const char *const newline = memchr(line, '\n', (size_t)(end - line));
    const size_t n = newline ? (size_t)(newline - line) : (size_t)(end - line);
    const char *included;
    size_t included_bytes;
    number++;
    if (!include_name(line, n, &included, &included_bytes)) {
      cvy_text_add_bytes(out, line, n);
      cvy_text_add(out, "\n");
    } else {
      bool known = false;
      for (int i = 0; i < seen->n && !is_template(included, included_bytes); i++)
        known |= strlen(seen->names[i]) == included_bytes && !memcmp(seen->names[i], included, included_bytes);
      if (known) {
        cvy_text_add(out, "\n");
      } else {
        inner = cvy_strndup(included, included_bytes);
        CVY_REQUIRE(inner, CVY_E_MEMORY, "no memory for the source of %s", name);
        CVY_TRY(expand(folder, inner, seen, out));
        cvy_free(inner);
        inner = NULL;
        cvy_text_add(out, "#line %ld \"%s\"\n", number + 1, shown);
      }
    }
    line += n + 1;
  }
  CVY_REQUIRE(!out->failed, CVY_E_MEMORY, "no memory for the source of %s", name);
fail:
  cvy_free(inner);
  cvy_free(data);
  cvy_text_clear(&path);
  return status;
}

static const cvy_embedded_source *find(const char *file) {
  const cvy_embedded_source *source = cvy_embedded_cl;
  while (source->name && strcmp(source->name, file) != 0) source++;
  return source->name ? source : NULL;
}

cvy_status cvy_source_read(const char *folder, const char *file, cvy_text *out) {
  cvy_status status = CVY_OK;
  seen_files seen = {0};
  cvy_text name = {0};
  const cvy_embedded_source *const embedded = find(file);
  cvy_text_add(&name, "%s%s.cl", embedded ? embedded->folder : "", file);
  CVY_REQUIRE(!name.failed, CVY_E_MEMORY, "no memory for the source of %s", file);
  CVY_TRY(expand(folder, name.data, &seen, out));
fail:
  for (int i = 0; i < seen.n; i++) cvy_free(seen.names[i]);
  cvy_text_clear(&name);
  return status;
}

cvy_status cvy_source_get(const char *file, cvy_text *out) {
  cvy_status status = CVY_OK;
  const char *const folder = cvy_env_text(CVY_ENV_CL_DIR);
  if (folder) return cvy_source_read(folder, file, out);
  const cvy_embedded_source *const source = find(file);
  CVY_REQUIRE(source, CVY_E_ARGUMENT, "no kernel file \"%s.cl\"", file);
  cvy_text_add_bytes(out, source->data, source->size);
  CVY_REQUIRE(!out->failed, CVY_E_MEMORY, "no memory for the source of %s", file);
fail:
  return status;
}

cvy_status cvy_source_key(const cvy_device_info *device, const char *file, const char *options, cvy_text *source,
                          cvy_text *key) {
  cvy_status status = CVY_OK;
  cvy_text own = {0}, *const text = source ? source : &own;
  CVY_TRY(cvy_source_get(file, text));
  const XXH128_hash_t hash = XXH3_128bits(text->data, text->size);
  cvy_text_add(key, "%s.cl %016llx%016llx\n%s\n%s\n%s\n%s\n%s\n%s\n", file, (unsigned long long)hash.high64,
               (unsigned long long)hash.low64, options, device->platform_name, device->platform_version, device->name,
               device->version, device->driver);
  CVY_REQUIRE(!key->failed, CVY_E_MEMORY, "no memory for the key of %s", file);
fail:
  cvy_text_clear(&own);
  return status;
}
