/* SPDX-License-Identifier: MIT
 * tests/data/kernel_variants.txt, the list that tools/kernel-check compiles for GPUs that are not here, holds every
 * program that the two networks ask for: each is set up for training and inference with both shapes of kernels, and the
 * library says which programs it builds. */
#include <stdio.h>

#include "convoy/data.h"
#include "convoy/net.h"
#include "convoy/team.h"
#include "tests/support/check_team.h"

enum { MOST = 4096, MOST_DEFINES = 64, LINE = 1024 };

typedef struct name_set {
  int n;
  char *items[MOST];
} name_set;
static name_set listed, used;
static int undeclared;

static bool add(name_set *set, const char *name) {
  for (int i = 0; i < set->n; i++)
    if (!strcmp(set->items[i], name)) return false;
  assert_true(set->n < MOST);
  set->items[set->n++] = strdup(name);
  return true;
}

static void clear(name_set *set) {
  for (int i = 0; i < set->n; i++) free(set->items[i]);
  set->n = 0;
}

static int compare(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* "conv2d_direct cpu A=1 B=2", defines sorted; the words of `text` that are no NAME=VALUE and those of the list's own
 * syntax are passed over. */
static void canonical(const char *text, char *out, size_t out_bytes) {
  char copy[LINE], *words[MOST_DEFINES], *save = NULL;
  int n = 0;
  const char *shape = "simt";
  snprintf(copy, sizeof copy, "%s", text);
  const char *const file = strtok_r(copy, " \n", &save);
  for (char *word; (word = strtok_r(NULL, " \n", &save));) {
    if (!strcmp(word, "cpu") || !strcmp(word, "CVY_CPU=1")) shape = "cpu";
    else if (strchr(word, '=') && word[0] != '-' && strncmp(word, "CVY_", 4) != 0) {
      assert_true(n < MOST_DEFINES);
      words[n++] = word;
    }
  }
  qsort(words, (size_t)n, sizeof *words, compare);
  int at = snprintf(out, out_bytes, "%s %s", file, shape);
  for (int i = 0; i < n; i++) at += snprintf(out + at, out_bytes - (size_t)at, " %s", words[i]);
}

static void note_program(void *user, cvy_log_level level, const char *message) {
  static const char prefix[] = "program ";
  char line[LINE];
  if (strstr(message, "cl/builtins.clh does not declare")) {
    fprintf(stderr, "  %s\n", message);
    undeclared++;
  }
  if (strncmp(message, prefix, sizeof prefix - 1) != 0) {
    if (level == CVY_LOG_ERROR) fprintf(stderr, "  %s\n", message);
    return;
  }
  canonical(message + sizeof prefix - 1, line, sizeof line);
  add(&used, line);
}

static void read_list(void) {
  char path[LINE], line[LINE], name[LINE];
  snprintf(path, sizeof path, "%s/kernel_variants.txt",
           getenv("CVY_TEST_DATA") ? getenv("CVY_TEST_DATA") : "tests/data");
  FILE *const f = fopen(path, "r");
  if (!f) fail_msg("cannot read %s", path);
  while (fgets(line, sizeof line, f)) {
    line[strcspn(line, "#\n")] = 0;
    if (!line[strspn(line, " ")]) continue;
    canonical(line, name, sizeof name);
    add(&listed, name);
  }
  fclose(f);
}

static void set_up(check_device *d, const char *model, int channels, int size, const cvy_team_params *params) {
  cvy_devices *devices;
  check_ok(cvy_devices_select(getenv("CVY_TEST_DEVICE") ? getenv("CVY_TEST_DEVICE") : "cpu", &devices));
  check_own(d, devices, check_close_devices);
  cvy_team *const team = check_bare_team(d, devices, check_model(d, model, channels, size), params);
  check_ok(cvy_team_attach(team, check_data(d, check_text("synthetic:16:%dx%dx%d", size, size, channels))));
  check_case_end(d);
}

CHECK_TEST(listed) {
  static const char *const shapes[] = {"cpu", "simt"}, *const models[] = {"lenet", "resnet18"};
  read_list();
  cvy_log_set(note_program, NULL, CVY_LOG_DEBUG);
  for (int s = 0; s < 2; s++) {
    setenv("CVY_FORCE_SHAPE", shapes[s], 1);
    for (int m = 0; m < 2; m++) {
      set_up(d, models[m], 1, 28, &(cvy_team_params){.batch = 8, .momentum = 0.9f, .nesterov = true});
      set_up(d, models[m], 3, 32, &(cvy_team_params){.batch = 8, .bn = CVY_BN_GHOST, .ghost = 4});
      set_up(d, models[m], 1, 28, &(cvy_team_params){.batch = 8, .inference = true});
    }
  }
  unsetenv("CVY_FORCE_SHAPE");
  cvy_log_set(NULL, NULL, CVY_LOG_ERROR);
  int missing = 0;
  for (int i = 0; i < used.n; i++) {
    bool found = false;
    for (int j = 0; j < listed.n && !found; j++) found = !strcmp(used.items[i], listed.items[j]);
    if (!found)
      fprintf(stderr, "%s%s\n", missing++ ? "" : "  add to tests/data/kernel_variants.txt (for simt: hot or cold):\n",
              used.items[i]);
  }
  const int n_used = used.n;
  clear(&used);
  clear(&listed);
  assert_true(n_used > 0);
  assert_int_equal(missing, 0);
  assert_int_equal(undeclared, 0);
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_HOST); }
