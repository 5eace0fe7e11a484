/* SPDX-License-Identifier: MIT
 * The part of the test layer (layer.c) that notes calls, for the words `calls` and `dump-after`. It lies on top: it
 * sees the calls as the program makes them. */
#ifndef CVY_TESTS_SUPPORT_LAYER_CALLS_H
#define CVY_TESTS_SUPPORT_LAYER_CALLS_H

#include "tests/support/layer_objects.h"

/* Replaces entries of `above` if the words ask for it. */
void layer_calls_init(const cl_icd_dispatch *below, cl_icd_dispatch *above);

#endif
