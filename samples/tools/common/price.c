/*
 * price.c - --max-ratio: how much more time than in the fastest batch an example may take in a
 * larger one.
 */
#include "price.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_RATIO 1e6

bool price_parse(const char *text, double *out_ratio)
{
    if (text == NULL) {
        *out_ratio = PRICE_USUAL;
        return true;
    }
    if (strcmp(text, "any") == 0) {
        *out_ratio = (double)INFINITY;
        return true;
    }
    char *end = NULL;
    *out_ratio = strtod(text, &end);
    return end != text && *end == '\0' && *out_ratio >= 1.0 && *out_ratio <= MOST_RATIO;
}

const char *price_text(double ratio, char out_text[PRICE_TEXT_BYTES])
{
    if (isinf(ratio)) {
        (void)snprintf(out_text, PRICE_TEXT_BYTES, "at any price");
    } else {
        (void)snprintf(out_text, PRICE_TEXT_BYTES, "within %g x the fastest time per example",
                       ratio);
    }
    return out_text;
}
