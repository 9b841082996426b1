/*
 * exposition.h - writes figures in Prometheus' text format, version 0.0.4.
 *
 * Source: Prometheus documentation, "Exposition formats", text-based format. A family is a HELP
 * line, a TYPE line and its samples, in this order; families do not mix.
 */
#ifndef DUNLIN_SERVER_EXPOSITION_H
#define DUNLIN_SERVER_EXPOSITION_H

#include <dunlin/alloc.h>
#include <dunlin/base.h>

#include <stdint.h>

#define DUNLIN_EXPOSITION_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* A text under way. Once it could not grow, nothing more is added. */
typedef struct dunlin__exposition {
    dunlin_alloc alloc;
    char *text; /* ends with a 0, unless NULL */
    size_t n_text;
    size_t capacity;
    bool is_full;
} dunlin__exposition;

/* A label; its value is any UTF-8, and is escaped. */
typedef struct dunlin__label {
    const char *name;
    const char *value;
} dunlin__label;

/* Begins a family: `type` is counter, gauge, summary, histogram or untyped. */
void dunlin__exposition_family(dunlin__exposition *out, const char *name, const char *type,
                               const char *help);
/* A sample of the family: `name` is the family's, or that and _sum, _count or _bucket. A value that
 * is no number is written as NaN, +Inf or -Inf. */
void dunlin__exposition_sample(dunlin__exposition *out, const char *name,
                               const dunlin__label *labels, size_t n_labels, double value);
/* The same for whole numbers, exactly, and a family of its own with one sample. */
void dunlin__exposition_count(dunlin__exposition *out, const char *name,
                              const dunlin__label *labels, size_t n_labels, uint64_t value);
void dunlin__exposition_one(dunlin__exposition *out, const char *name, const char *type,
                            const char *help, double value);
void dunlin__exposition_free(dunlin__exposition *out);

#endif
