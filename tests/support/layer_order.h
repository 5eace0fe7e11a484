/* SPDX-License-Identifier: MIT
 * The words that the test layer (layer.c) goes by: those of $CVY_LAYER, or those that a test has given in their place
 * (layer_words.h), and besides those of $CVY_LAYER_ALWAYS, read once. Any thread. */
#ifndef CVY_TESTS_SUPPORT_LAYER_ORDER_H
#define CVY_TESTS_SUPPORT_LAYER_ORDER_H

#include <stdbool.h>
#include <stddef.h>

enum { LAYER_WORDS = 512 };

/* Copies $CVY_LAYER, or what the test has given, to `out`; true if it differs from what was there. */
bool layer_order_read(char out[LAYER_WORDS]);
/* Whether all the words, those of $CVY_LAYER_ALWAYS among them, have this one, and its argument ("" without; `arg` may
 * be NULL). */
bool layer_order_has(const char *name, char *arg, size_t arg_bytes);
/* Whether one of the words is exactly "name=arg". */
bool layer_order_is(const char *name, const char *arg);
/* Whether somebody may ask for faults: $CVY_LAYER is set, or a test has given words. */
bool layer_order_wants_faults(void);
/* Prints the text that cannot be read and ends the program. */
_Noreturn void layer_order_wrong(const char *text);

#endif
