/*
 * object.h - sets the members of JSON objects: numbers that are not finite and text that is NULL
 * become null. Text that is not UTF-8 keeps its ASCII letters.
 */
#ifndef SAMPLES_TRAIN_OBJECT_H
#define SAMPLES_TRAIN_OBJECT_H

#include "train.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

void object_bytes(json_t *object, const char *key, uint64_t bytes);
void object_number(json_t *object, const char *key, int64_t number);
void object_real(json_t *object, const char *key, double number);
void object_text(json_t *object, const char *key, const char *text);
void object_flag(json_t *object, const char *key, bool is_set);

/* report.c: `status` ("ok", or the name of what the program ended with) and `error` (null, or the
 * line that was printed). */
void train_set_outcome(json_t *root, int exit_status);

/* scales.c: the known scales of a trainer in integers (a new reference), NULL in float32:
 * `[{name, kind, exponent, clipped, raised, lowered}]`. */
json_t *train_scales_array(const dunlin_trainer *trainer);

/* facts.c: `hyper`, `commit`, `cpu_model` and `cpu_s`, of flags that were checked. */
void train_set_facts(json_t *root, const train_flags *flags);

#endif
