/*
 * augment.c - the list of --augment: what is changed at random in the examples that are trained on.
 */
#include "augment.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_PIXELS 4096
#define MOST_PLACES (1 << 24)

/* One kind of change: "NAME", or "NAME=VALUE" with a whole or a real number within limits. */
typedef struct change {
    const char *name;
    bool has_value, is_whole;
    double low, high;
} change;

static const change changes[] = {
    {"crop", true, true, 0, MOST_PIXELS},   {"flip", false, false, 0, 0},
    {"cutout", true, true, 1, MOST_PIXELS}, {"mixup", true, false, 1e-6, 1000},
    {"noise", true, false, 1e-9, 1000},     {"shift", true, true, 1, MOST_PLACES},
};
#define N_CHANGES ((int)(sizeof changes / sizeof changes[0]))

enum { CROP = 0, FLIP, CUTOUT, MIXUP, NOISE, SHIFT };

static int refuse(const program_info *program, const char *piece)
{
    return program_misuse(
        program,
        "--augment %s: expected some of crop=PAD (0 to 4096), flip, cutout=SIDE "
        "(1 to 4096), mixup=ALPHA, noise=DEVIATION (above 0 to 1000), shift=PLACES "
        "(1 to 16777216), with commas, each once",
        piece);
}

static void take(augment_choice *out, int which, double value)
{
    switch (which) {
    case CROP:
        out->has_crop = true;
        out->padding = (int64_t)value;
        break;
    case FLIP:
        out->is_flip = true;
        break;
    case CUTOUT:
        out->cutout = (int64_t)value;
        break;
    case MIXUP:
        out->mixup = value;
        break;
    case NOISE:
        out->noise = value;
        break;
    default:
        out->shift = (int64_t)value;
        break;
    }
}

/* "NAME" or "NAME=VALUE"; `io_seen` has a bit for each kind. */
static int read_change(const program_info *program, augment_choice *out, char *piece,
                       unsigned *io_seen)
{
    char given[64];
    (void)snprintf(given, sizeof given, "%s", piece);
    char *value_text = strchr(piece, '=');
    if (value_text != NULL) {
        *value_text++ = '\0';
    }
    int which = 0;
    while (which < N_CHANGES && strcmp(changes[which].name, piece) != 0) {
        which++;
    }
    if (which == N_CHANGES || (*io_seen & 1U << which) != 0 ||
        changes[which].has_value != (value_text != NULL)) {
        return refuse(program, given);
    }
    double value = 0.0;
    if (value_text != NULL) {
        char *end = NULL;
        value = strtod(value_text, &end);
        const change *of = &changes[which];
        if (end == value_text || *end != '\0' || !isfinite(value) || value < of->low ||
            value > of->high || (of->is_whole && value != floor(value))) {
            return refuse(program, given);
        }
    }
    *io_seen |= 1U << which;
    take(out, which, value);
    return EXIT_OK;
}

int augment_parse(const program_info *program, const char *given, augment_choice *out_choice)
{
    char text[512];
    char *rest = NULL;
    unsigned seen = 0;
    *out_choice = (augment_choice){.padding = 0};
    if (given == NULL) {
        return EXIT_OK;
    }
    if ((size_t)snprintf(text, sizeof text, "%s", given) >= sizeof text) {
        return refuse(program, "with more than 511 characters");
    }
    int status = EXIT_OK;
    for (char *piece = strtok_r(text, ",", &rest); piece != NULL && status == EXIT_OK;
         piece = strtok_r(NULL, ",", &rest)) {
        status = read_change(program, out_choice, piece, &seen);
    }
    return status == EXIT_OK && seen == 0 ? refuse(program, "\"\"") : status;
}
