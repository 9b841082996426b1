/*
 * price.h - --max-ratio: how much more time than in the fastest batch an example may take in a
 * larger one.
 */
#ifndef SAMPLES_COMMON_PRICE_H
#define SAMPLES_COMMON_PRICE_H

#include <stdbool.h>

#define PRICE_USUAL 1.3 /* without the flag */

/* What the ratio is of, in the words of the JSON results. */
#define PRICE_BASE "the fastest time per example of any batch that fits the budget"

/* A number from 1 to 10^6, or "any": infinity. NULL: the usual one. */
bool price_parse(const char *text, double *out_ratio);

#define PRICE_TEXT_BYTES 64
/* "within 1.3 x the fastest time per example", or "at any price"; returns out_text. */
const char *price_text(double ratio, char out_text[PRICE_TEXT_BYTES]);

#endif
