/*
 * exposition.c - writes figures in Prometheus' text format: families, samples, escapes.
 */
#include "exposition.h"

#include <mem/support.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static void add_bytes(dunlin__exposition *out, const char *bytes, size_t n_bytes)
{
    void *text = out->text;
    bool has_room = !out->is_full && dunlin__grow_array(&out->alloc, &text, &out->capacity,
                                                        out->n_text + n_bytes + 1, 1);
    out->text = text;
    out->is_full = !has_room;
    if (has_room) {
        memcpy(out->text + out->n_text, bytes, n_bytes);
        out->n_text += n_bytes;
        out->text[out->n_text] = 0;
    }
}

static void add_text(dunlin__exposition *out, const char *text)
{
    add_bytes(out, text, strlen(text));
}

/* Backslash and line feed are escaped everywhere, the quote in values of labels. */
static void add_escaped(dunlin__exposition *out, const char *text, bool is_quoted)
{
    for (; *text != 0; text++) {
        if (*text == '\\') {
            add_text(out, "\\\\");
        } else if (*text == '\n') {
            add_text(out, "\\n");
        } else if (*text == '"' && is_quoted) {
            add_text(out, "\\\"");
        } else {
            add_bytes(out, text, 1);
        }
    }
}

void dunlin__exposition_family(dunlin__exposition *out, const char *name, const char *type,
                               const char *help)
{
    add_text(out, "# HELP ");
    add_text(out, name);
    add_text(out, " ");
    add_escaped(out, help, false);
    add_text(out, "\n# TYPE ");
    add_text(out, name);
    add_text(out, " ");
    add_text(out, type);
    add_text(out, "\n");
}

static void add_sample(dunlin__exposition *out, const char *name, const dunlin__label *labels,
                       size_t n_labels, const char *value)
{
    add_text(out, name);
    for (size_t i = 0; i < n_labels; i++) {
        add_text(out, i == 0 ? "{" : ",");
        add_text(out, labels[i].name);
        add_text(out, "=\"");
        add_escaped(out, labels[i].value, true);
        add_text(out, "\"");
    }
    add_text(out, n_labels > 0 ? "} " : " ");
    add_text(out, value);
    add_text(out, "\n");
}

void dunlin__exposition_sample(dunlin__exposition *out, const char *name,
                               const dunlin__label *labels, size_t n_labels, double value)
{
    char text[40];
    if (isnan(value)) {
        (void)snprintf(text, sizeof text, "NaN");
    } else if (isinf(value)) {
        (void)snprintf(text, sizeof text, "%s", value > 0 ? "+Inf" : "-Inf");
    } else {
        (void)snprintf(text, sizeof text, "%.17g", value);
    }
    add_sample(out, name, labels, n_labels, text);
}

void dunlin__exposition_count(dunlin__exposition *out, const char *name,
                              const dunlin__label *labels, size_t n_labels, uint64_t value)
{
    char text[24];
    (void)snprintf(text, sizeof text, "%" PRIu64, value);
    add_sample(out, name, labels, n_labels, text);
}

void dunlin__exposition_one(dunlin__exposition *out, const char *name, const char *type,
                            const char *help, double value)
{
    dunlin__exposition_family(out, name, type, help);
    dunlin__exposition_sample(out, name, NULL, 0, value);
}

void dunlin__exposition_free(dunlin__exposition *out)
{
    dunlin__free_array(&out->alloc, out->text, out->capacity, 1);
    out->text = NULL;
    out->n_text = 0;
    out->capacity = 0;
}
