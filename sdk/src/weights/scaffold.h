/*
 * scaffold.h - option II of SCAFFOLD (Karimireddy et al. 2020), by blocks.
 */
#ifndef DUNLIN_SDK_SCAFFOLD_H
#define DUNLIN_SDK_SCAFFOLD_H

#include "context/client_context.h"

/* What is added to each gradient, c - c_i, as the learner reads it. */
dunlin_weights_reader dunlin__scaffold_correction(dunlin_client *client);
/* The change of the device's variate, (x - y) / (K lr) - c; `fresh` holds y. */
dunlin_status dunlin__scaffold_change(dunlin_client *client, const dunlin_weights_reader *fresh,
                                      int32_t fresh_index, int32_t base_index, int64_t first,
                                      int64_t n, float *out);
/* The device's variate as it was; zeros before the first round that counted. */
dunlin_status dunlin__scaffold_own(dunlin_client *client, int32_t base_index, int64_t first,
                                   int64_t n, float *out);
bool dunlin__round_is_scaffold(const dunlin_client *client);

#endif
