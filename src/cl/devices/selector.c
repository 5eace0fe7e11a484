/* SPDX-License-Identifier: MIT */
#include "src/cl/devices/selector.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "src/base/mem.h"
#include "src/base/text.h"

enum { MOST_PARTS = 64, MOST_REPLICAS = 256, MOST_SELECTED = 1024, LONGEST_TERM = 256, SHORTEST_PART = 2 };

/* One term, taken apart. */
typedef struct term {
  char base[LONGEST_TERM];
  int replicas;                   /* 1 without suffix */
  int n_parts, units[MOST_PARTS]; /* 0: whole device */
  int n_equal;                    /* of /=N, 0 without */
  bool by_number;                 /* P:D */
} term;

typedef struct selection {
  const cvy_device_list *list;
  cvy_selected_device *selected;
  int n;
  bool *taken; /* per device */
  bool all;    /* the word was among the terms */
} selection;

static bool contains(const char *text, const char *fragment) {
  const size_t n = strlen(fragment);
  for (; *text; text++) {
    size_t i = 0;
    while (i < n && tolower((unsigned char)text[i]) == tolower((unsigned char)fragment[i])) i++;
    if (i == n) return true;
  }
  return false;
}

/* The devices that are there, one per line, for messages. */
static void describe(const cvy_device_list *list, cvy_text *out) {
  for (int i = 0; i < list->n; i++) {
    const cvy_device_info *const info = &list->items[i];
    if (info->index < 0) cvy_text_add(out, "\n  platform %d %s: %s", info->platform, info->platform_name, info->reason);
    else if (!info->usable)
      cvy_text_add(out, "\n  - %d:%d %s: %s", info->platform, info->index, info->name, info->reason);
    else cvy_text_add(out, "\n  %d:%d %s (%s)", info->platform, info->index, info->name, info->platform_name);
  }
  if (list->n == 0) cvy_text_add(out, "\n  none: no OpenCL platform is installed");
}

static cvy_status no_device(const cvy_device_list *list, const char *what) {
  cvy_text text = {0};
  describe(list, &text);
  cvy_log_error("%s. The devices are:%s", what, cvy_text_get(&text));
  cvy_text_clear(&text);
  return CVY_E_NO_DEVICE;
}

/* Of a table: the entry that is this text in upper or lower case; NULL: none is. */
static const char *find_word(const char *const *words, size_t n, const char *text) {
  for (size_t i = 0; i < n; i++)
    if (!strcasecmp(words[i], text)) return words[i];
  return NULL;
}
static const char *const kinds[] = {"auto", "all", "gpu", "cpu"}, *const vendors[] = {"nvidia", "amd", "intel"};
enum { N_KINDS = sizeof kinds / sizeof *kinds, N_VENDORS = sizeof vendors / sizeof *vendors };
static const char *kind_word(const char *text) { return find_word(kinds, N_KINDS, text); }
static const char *vendor_word(const char *text) { return find_word(vendors, N_VENDORS, text); }

bool cvy_selector_means_gpus(const char *text) {
  if (contains(text, "gpu")) return true;
  for (int i = 0; i < N_VENDORS; i++)
    if (contains(text, vendors[i])) return true;
  return false;
}

/* A decimal number of [1, max] at *at, which moves behind it. */
static bool take_number(const char **at, int max, int *out) {
  char digits[12];
  size_t n = 0;
  int64_t value;
  while (isdigit((unsigned char)(*at)[n])) n++;
  if (n == 0 || n >= sizeof digits) return false;
  memcpy(digits, *at, n);
  digits[n] = 0;
  if (!cvy_parse_int(digits, 1, max, &value)) return false;
  *out = (int)value;
  *at += n;
  return true;
}

static cvy_status term_parse(const char *text, size_t size, term *out) {
  cvy_status status = CVY_OK;
  char whole[LONGEST_TERM];
  *out = (term){.replicas = 1};
  CVY_REQUIRE(size > 0, CVY_E_ARGUMENT,
              "an empty term in the list of devices: write P:D, a part of a name, auto, all, gpu or cpu");
  CVY_REQUIRE(size < sizeof whole, CVY_E_ARGUMENT, "a term of %zu characters in the list of devices: at most %d", size,
              LONGEST_TERM - 1);
  memcpy(whole, text, size);
  whole[size] = 0;
  const size_t base_size = strcspn(whole, "*/");
  memcpy(out->base, whole, base_size);
  out->base[base_size] = 0;
  CVY_REQUIRE(base_size > 0 && !isspace((unsigned char)whole[0]) && !isspace((unsigned char)whole[base_size - 1]),
              CVY_E_ARGUMENT,
              "device term '%s': expected P:D, a part of a name, auto, all, gpu or cpu, without blanks around it",
              whole);
  bool replicas_seen = false;
  for (const char *at = whole + base_size; *at;) {
    const char kind = *at++;
    if (kind == '*') {
      CVY_REQUIRE(!replicas_seen, CVY_E_ARGUMENT, "device term '%s': '*' twice", whole);
      replicas_seen = true;
      CVY_REQUIRE(take_number(&at, MOST_REPLICAS, &out->replicas), CVY_E_ARGUMENT,
                  "device term '%s': after '*' comes the number of replicas, 1 to %d", whole, MOST_REPLICAS);
    } else {
      CVY_REQUIRE(out->n_parts == 0 && out->n_equal == 0, CVY_E_ARGUMENT, "device term '%s': '/' twice", whole);
      if (*at == '=') {
        at++;
        CVY_REQUIRE(take_number(&at, MOST_PARTS, &out->n_equal), CVY_E_ARGUMENT,
                    "device term '%s': after '/=' comes the number of equal parts, 1 to %d", whole, MOST_PARTS);
      } else {
        for (;;) {
          CVY_REQUIRE(out->n_parts < MOST_PARTS, CVY_E_ARGUMENT, "device term '%s': more than %d parts", whole,
                      MOST_PARTS);
          CVY_REQUIRE(take_number(&at, 1 << 20, &out->units[out->n_parts]), CVY_E_ARGUMENT,
                      "device term '%s': after '/' come compute units per part, such as /2+2, each at least 1", whole);
          out->n_parts++;
          if (*at != '+') break;
          at++;
        }
      }
    }
    CVY_REQUIRE(*at == 0 || *at == '*' || *at == '/', CVY_E_ARGUMENT,
                "device term '%s': '%s' is not understood; suffixes are *N, /a+b+… and /=N", whole, at);
  }
fail:
  return status;
}

static cvy_status selected_add(selection *s, int item, const term *t) {
  cvy_status status = CVY_OK;
  const cvy_device_info *const info = &s->list->items[item];
  int units[MOST_PARTS], n_parts = t->n_parts, total = 0;
  for (int i = 0; i < n_parts; i++) units[i] = t->units[i];
  if (t->n_equal > 0) {
    n_parts = t->n_equal;
    CVY_REQUIRE(n_parts <= info->compute_units, CVY_E_ARGUMENT,
                "%d:%d %s cannot be cut into %d parts: it has %d compute units", info->platform, info->index,
                info->name, n_parts, info->compute_units);
    for (int i = 0; i < n_parts; i++) units[i] = info->compute_units / n_parts;
  }
  for (int i = 0; i < n_parts; i++) {
    CVY_REQUIRE(units[i] <= info->compute_units - total, CVY_E_ARGUMENT,
                "%d:%d %s has %d compute units, fewer than its parts", info->platform, info->index, info->name,
                info->compute_units);
    total += units[i];
  }
  CVY_REQUIRE(n_parts == 0 || info->can_partition_by_counts, CVY_E_ARGUMENT,
              "%d:%d %s cannot be cut into parts: its driver does not offer it; %d:%d*%d puts replicas on the whole of "
              "it",
              info->platform, info->index, info->name, info->platform, info->index, n_parts * t->replicas);
  CVY_REQUIRE(!s->taken[item], CVY_E_ARGUMENT, "%d:%d %s is listed twice; replicas on one device are written %d:%d*2",
              info->platform, info->index, info->name, info->platform, info->index);
  s->taken[item] = true;
  int unit_first = 0;
  for (int part = 0; part < (n_parts ? n_parts : 1); part++) {
    for (int replica = 0; replica < t->replicas; replica++) {
      CVY_REQUIRE(s->n < MOST_SELECTED, CVY_E_ARGUMENT, "too many devices; expected at most %d", MOST_SELECTED);
      cvy_selected_device *const grown = cvy_realloc(s->selected, (size_t)s->n, (size_t)s->n + 1, sizeof *grown);
      CVY_REQUIRE(grown, CVY_E_MEMORY, "no memory for %d devices", s->n + 1);
      s->selected = grown;
      cvy_selected_device *const c = &s->selected[s->n++];
      c->item = item;
      c->place = s->n - 1;
      c->by_number = t->by_number;
      if (n_parts) {
        c->units = units[part];
        c->unit_first = unit_first;
        c->part = part;
        c->n_parts = n_parts;
        memcpy(c->part_units, units, (size_t)n_parts * sizeof units[0]);
      }
      char part_text[16] = "", replica_text[16] = "";
      if (n_parts) snprintf(part_text, sizeof part_text, "/%d", part);
      if (t->replicas > 1) snprintf(replica_text, sizeof replica_text, "#%d", replica);
      snprintf(c->label, sizeof c->label, "%d:%d%s%s %s", info->platform, info->index, part_text, replica_text,
               info->name);
    }
    if (n_parts) unit_first += units[part];
  }
fail:
  return status;
}

/* Logs which devices `all` leaves out (unusable ones, and second drivers of the same hardware), and why. */
static void tell_left_out(const selection *s) {
  const cvy_device_list *const list = s->list;
  cvy_text text = {0};
  for (int i = 0; i < list->n; i++) {
    const cvy_device_info *const info = &list->items[i];
    const cvy_device_info *const other = info->same_as >= 0 ? &list->items[info->same_as] : NULL;
    if (info->index < 0 || s->taken[i] || (info->usable && !other)) continue;
    cvy_text_add(&text, "%s%d:%d %s (", text.size ? ", " : "", info->platform, info->index, info->name);
    if (!info->usable) cvy_text_add(&text, "%s)", info->reason);
    else
      cvy_text_add(&text, "%s %d:%d)", info->duplicate ? "the same device as" : "same cores as", other->platform,
                   other->index);
  }
  if (text.size) cvy_log_info("--devices all leaves out %s", cvy_text_get(&text));
  cvy_text_clear(&text);
}

/* word: auto, all, gpu, cpu. */
static cvy_status kind_add(selection *s, const char *word, const term *t, bool *fell_back) {
  cvy_status status = CVY_OK;
  const cvy_device_list *const list = s->list;
  int n_gpus = 0, n_usable = 0;
  bool cpu = !strcmp(word, "cpu") || !strcmp(word, "all");
  const bool gpus = strcmp(word, "cpu") != 0, others = !strcmp(word, "all");
  const int before = s->n;
  for (int i = 0; i < list->n; i++) {
    if (!list->items[i].usable) continue;
    n_usable++;
    n_gpus += list->items[i].kind == CVY_DEVICE_GPU;
  }
  if (n_usable == 0 && gpus && strcmp(word, "gpu") != 0) return no_device(list, "there is no usable OpenCL device");
  if (!strcmp(word, "auto") && n_gpus == 0) {
    cpu = true;
    *fell_back = true;
  }
  for (int i = 0; i < list->n; i++) {
    const cvy_device_info *const info = &list->items[i];
    /* same_as: the second driver of a GPU, or a CPU runtime on cores that another one drives */
    if (!info->usable || info->same_as >= 0) continue;
    if ((info->kind == CVY_DEVICE_CPU && cpu) || (info->kind == CVY_DEVICE_GPU && gpus) ||
        (info->kind == CVY_DEVICE_OTHER && others))
      CVY_TRY(selected_add(s, i, t));
  }
  s->all |= others;
  if (s->n == before) {
    char what[LONGEST_TERM + 64];
    snprintf(what, sizeof what, "'%s': there is no usable device of that kind", word);
    return no_device(list, what);
  }
fail:
  return status;
}

/* PoCL's platform does not say PoCL; its devices were called pthread and basic, and are cpu and cpu-minimal since
 * version 4. */
static bool matches(const cvy_device_info *info, const char *part) {
  if (contains(info->name, part) || contains(info->platform_name, part)) return true;
  if (!strstr(info->platform_name, "Portable Computing Language")) return false;
  const bool minimal = !strncmp(info->name, "cpu-minimal", 11), whole = !minimal && !strncmp(info->name, "cpu", 3);
  return contains("pocl", part) || (minimal && contains("basic", part)) || (whole && contains("pthread", part)) ||
         (!strncmp(info->name, "basic", 5) && contains("cpu-minimal", part));
}

/* word: nvidia, amd, intel. Its GPUs, each by one driver; where there are none its CPU, which has the vendor in its
 * name as often as a card has. */
static cvy_status vendor_add(selection *s, const char *word, const term *t) {
  cvy_status status = CVY_OK;
  const cvy_device_list *const list = s->list;
  const char *const long_name = !strcmp(word, "amd") ? "Advanced Micro Devices" : word;
  const int before = s->n;
  int cpu = -1, unusable = -1;
  for (int i = 0; i < list->n; i++) {
    const cvy_device_info *const info = &list->items[i];
    if (info->index < 0 || !(matches(info, word) || contains(info->vendor, word) || contains(info->vendor, long_name)))
      continue;
    if (info->kind == CVY_DEVICE_CPU) {
      if (info->usable && (cpu < 0 || (list->items[cpu].same_as >= 0 && info->same_as < 0))) cpu = i;
    } else if (!info->usable) {
      unusable = i;
    } else if (info->same_as < 0 || !s->taken[info->same_as]) {
      CVY_TRY(selected_add(s, i, t));
    }
  }
  if (s->n > before) return CVY_OK;
  const cvy_device_info *const broken = unusable >= 0 ? &list->items[unusable] : NULL;
  char what[LONGEST_TERM + 512];
  if (broken)
    snprintf(what, sizeof what, "'%s': %d:%d %s cannot be used: %s", t->base, broken->platform, broken->index,
             broken->name, broken->reason);
  else snprintf(what, sizeof what, "'%s': there is no usable device of that vendor", t->base);
  if (cpu < 0) return no_device(list, what);
  if (!broken) snprintf(what, sizeof what, "'%s': there is no GPU of that vendor", t->base);
  cvy_log_warning("%s; its CPU is taken, %d:%d %s", what, list->items[cpu].platform, list->items[cpu].index,
                  list->items[cpu].name);
  CVY_TRY(selected_add(s, cpu, t));
fail:
  return status;
}

/* P:D or a part of a name. */
static cvy_status name_add(selection *s, term *t) {
  cvy_status status = CVY_OK;
  const cvy_device_list *const list = s->list;
  const char *const colon = strchr(t->base, ':');
  char what[LONGEST_TERM + 512], platform_text[LONGEST_TERM];
  int64_t platform = -1, index = -1;
  bool is_place = false;
  if (colon) {
    snprintf(platform_text, sizeof platform_text, "%.*s", (int)(colon - t->base), t->base);
    is_place = cvy_parse_int(platform_text, 0, 1 << 20, &platform) && cvy_parse_int(colon + 1, 0, 1 << 20, &index);
  }
  t->by_number = is_place;
  CVY_REQUIRE(is_place || strlen(t->base) >= SHORTEST_PART, CVY_E_ARGUMENT,
              "device term '%s': write P:D, such as %s:0, auto, all, gpu, cpu, or a part of a name of at least %d "
              "characters",
              t->base, isdigit((unsigned char)t->base[0]) ? t->base : "0", SHORTEST_PART);
  int n_matches = 0, unusable = -1;
  for (int i = 0; i < list->n; i++) {
    const cvy_device_info *const info = &list->items[i];
    if (info->index < 0) continue;
    if (!(is_place ? info->platform == platform && info->index == index : matches(info, t->base))) continue;
    if (!info->usable) {
      unusable = i;
      continue;
    }
    n_matches++;
    CVY_TRY(selected_add(s, i, t));
  }
  if (n_matches == 0) {
    if (unusable >= 0) {
      const cvy_device_info *const info = &list->items[unusable];
      snprintf(what, sizeof what, "'%s': %d:%d %s cannot be used: %s", t->base, info->platform, info->index, info->name,
               info->reason);
    } else {
      snprintf(what, sizeof what, is_place ? "there is no device %s" : "no device or platform has '%s' in its name",
               t->base);
    }
    return no_device(list, what);
  }
fail:
  return status;
}

cvy_status cvy_select(const cvy_device_list *list, const char *text, cvy_selected_device **selected, int *n,
                      bool *fell_back_to_cpu) {
  cvy_status status = CVY_OK;
  selection s = {.list = list};
  bool fell_back = false;
  s.taken = cvy_calloc((size_t)list->n, sizeof *s.taken);
  CVY_REQUIRE(s.taken, CVY_E_MEMORY, "no memory to choose devices");
  CVY_REQUIRE(*text, CVY_E_ARGUMENT, "no devices are named: write auto, all, gpu, cpu, P:D or a part of a name");
  for (const char *at = text;;) {
    const size_t size = strcspn(at, ",");
    term t;
    CVY_TRY(term_parse(at, size, &t));
    const char *const kind = kind_word(t.base), *const vendor = vendor_word(t.base);
    if (kind) CVY_TRY(kind_add(&s, kind, &t, &fell_back));
    else if (vendor) CVY_TRY(vendor_add(&s, vendor, &t));
    else CVY_TRY(name_add(&s, &t));
    at += size;
    if (!*at) break;
    at++;
  }
  if (s.all) tell_left_out(&s);
  *selected = s.selected;
  *n = s.n;
  *fell_back_to_cpu = fell_back;
  s.selected = NULL;
fail:
  cvy_free(s.selected);
  cvy_free(s.taken);
  return status;
}
