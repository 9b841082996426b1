/*
 * own_rows.c - fills a data set from rows of numbers with labels: in which form, and which of them.
 *
 * Invariant: form, classes, means and deviations follow from the training file alone, whichever
 * split is opened and however few of its examples are kept. Source: Welford, "Note on a method for
 * calculating corrected sums of squares and products", 1962.
 */
#include "own_rows.h"

#include "data/common/own.h"
#include "data/files/lines.h"
#include "own_form.h"

#include <mem/checked.h>
#include <mem/support.h>

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef enum own_phase { PHASE_SCAN, PHASE_COUNT, PHASE_READ } own_phase;

typedef struct own_pass {
    dunlin_dataset *set;
    const dunlin_data_request *request;
    const dunlin_own_spec *spec;
    own_phase phase;
    bool is_test;      /* the split that is opened */
    bool is_test_file; /* that is read now */
    int64_t n;         /* rows of this pass so far */
    int64_t n_rows;    /* of the training file */
    int64_t n_train;   /* of them not held out */
    int64_t n_trained; /* of this pass so far */
    int64_t n_kept;
    dunlin_own_draw held;
    /* From the scan. */
    dunlin_shape stored;
    bool are_pixels; /* all values are whole, from 0 to 255 */
    bool are_label_numbers;
    int64_t largest_label;
    dunlin_own_names labels, clients;
    /* Settled after the scan. */
    dunlin_own_form form;
    dunlin_own_sums sums[DUNLIN_DATA_MAX_CHANNELS]; /* of bytes */
    double *moments;                                /* of floats: count, mean, squares each */
    size_t n_moments;
    uint8_t *bytes; /* one example as bytes */
    size_t n_values;
} own_pass;

static bool is_whole(double value, double least, double most)
{
    return value >= least && value <= most && value == floor(value);
}

/* --- the scan --- */

static dunlin_status begin_file(void *ctx, const char *file, const dunlin_shape *shape,
                                dunlin_error *error)
{
    own_pass *pass = ctx;
    pass->n = 0;
    if (pass->phase == PHASE_SCAN) {
        pass->stored = *shape;
        return DUNLIN_OK;
    }
    bool is_same = shape->n_dims == pass->stored.n_dims;
    for (int32_t i = 0; is_same && i < shape->n_dims; i++) {
        is_same = shape->dims[i] == pass->stored.dims[i];
    }
    return is_same ? DUNLIN_OK
                   : dunlin__fail(error, DUNLIN_MISMATCH, "data", 0,
                                  "%s: its examples have another shape than those of the training "
                                  "file",
                                  file);
}

static dunlin_status scan_label(own_pass *pass, const dunlin_own_row *row, const char *where,
                                dunlin_error *error)
{
    int64_t whole = -1;
    if (row->label_name != NULL) {
        pass->are_label_numbers =
            pass->are_label_numbers &&
            dunlin__field_whole(row->label_name, 0, DUNLIN_DATA_MAX_CLASSES - 1, &whole);
        pass->largest_label = whole > pass->largest_label ? whole : pass->largest_label;
        DUNLIN_TRY(dunlin__own_names_add(&pass->set->alloc, &pass->labels, row->label_name,
                                         DUNLIN_DATA_MAX_CLASSES, "labels", error));
    } else if (!is_whole(row->label, 0.0, DUNLIN_DATA_MAX_CLASSES - 1)) {
        return dunlin__fail(error, DUNLIN_DATA, "data", 0,
                            "%s: label %g: expected a whole number from 0 to %d", where, row->label,
                            DUNLIN_DATA_MAX_CLASSES - 1);
    } else {
        whole = (int64_t)row->label;
        pass->largest_label = whole > pass->largest_label ? whole : pass->largest_label;
    }
    return row->client_name == NULL
               ? DUNLIN_OK
               : dunlin__own_names_add(&pass->set->alloc, &pass->clients, row->client_name,
                                       DUNLIN_DATA_MAX_CLIENT + 1, "clients", error);
}

static dunlin_status scan_row(own_pass *pass, const dunlin_own_row *row, const char *where,
                              dunlin_error *error)
{
    int64_t n_values = 0;
    DUNLIN_TRY(dunlin_shape_count(&pass->stored, &n_values));
    for (int64_t i = 0; i < n_values; i++) {
        pass->are_pixels = pass->are_pixels && is_whole(row->values[i], 0.0, 255.0);
        if (fabs(row->values[i]) > (double)FLT_MAX) {
            return dunlin__fail(error, DUNLIN_DATA, "data", 0,
                                "%s: column %" PRId64 " is %g, beyond what a float holds", where, i,
                                row->values[i]);
        }
    }
    return scan_label(pass, row, where, error);
}

/* --- reading --- */

static void add_moments(own_pass *pass, const double *values)
{
    const size_t n_each = pass->n_values / pass->n_moments;
    for (size_t i = 0; i < pass->n_values; i++) {
        double *of = pass->moments + i / n_each * 3;
        const double before = values[i] - of[1];
        of[0] += 1.0;
        of[1] += before / of[0];
        of[2] += before * (values[i] - of[1]);
    }
}

static void add_sums(own_pass *pass)
{
    const size_t n_each = pass->n_values / (size_t)pass->form.n_channels;
    for (int32_t c = 0; c < pass->form.n_channels; c++) {
        dunlin__own_sums_add(&pass->sums[c], pass->bytes + (size_t)c * n_each, n_each);
    }
}

static dunlin_status find_label(const own_pass *pass, const dunlin_own_row *row, const char *where,
                                int64_t *out_label, dunlin_error *error)
{
    int64_t label = -1;
    if (row->label_name == NULL) {
        label = is_whole(row->label, 0.0, pass->set->n_classes - 1) ? (int64_t)row->label : -1;
    } else if (pass->are_label_numbers) {
        label = dunlin__field_whole(row->label_name, 0, pass->set->n_classes - 1, out_label)
                    ? *out_label
                    : -1;
    } else {
        label = dunlin__own_names_find(&pass->labels, row->label_name);
    }
    *out_label = label;
    return label >= 0 ? DUNLIN_OK
                      : dunlin__fail(error, DUNLIN_DATA, "data", 0,
                                     "%s: a label that the training file does not have", where);
}

/* Writes the values in the form of the set. */
static dunlin_status write_values(const own_pass *pass, const double *values, const char *where,
                                  uint8_t *to, dunlin_error *error)
{
    const dunlin_own_form *form = &pass->form;
    for (size_t i = 0; i < pass->n_values; i++) {
        const double value = values[dunlin__own_form_from(form, i)];
        const double most = form->dtype == DUNLIN_U8 ? 255.0 : (double)pass->set->vocabulary - 1.0;
        if (form->dtype != DUNLIN_F32 && !is_whole(value, 0.0, most)) {
            return dunlin__fail(error, DUNLIN_DATA, "data", 0,
                                "%s: column %zu is %g: expected a whole number from 0 to %.0f, "
                                "%s",
                                where, dunlin__own_form_from(form, i), value, most,
                                form->dtype == DUNLIN_U8 ? "as in the training file"
                                                         : "a token below the vocabulary");
        }
        if (form->dtype == DUNLIN_U8) {
            to[i] = (uint8_t)value;
        } else if (form->dtype == DUNLIN_I32) {
            const int32_t token = (int32_t)value;
            memcpy(to + i * sizeof token, &token, sizeof token);
        } else {
            const float number = (float)value;
            memcpy(to + i * sizeof number, &number, sizeof number);
        }
    }
    return DUNLIN_OK;
}

static dunlin_status keep_row(own_pass *pass, const dunlin_own_row *row, const char *where,
                              dunlin_error *error)
{
    dunlin_dataset *set = pass->set;
    int64_t label = 0;
    DUNLIN_TRY(find_label(pass, row, where, &label, error));
    set->labels[pass->n_kept] = (uint16_t)label;
    if (set->clients != NULL) {
        const int64_t client = dunlin__own_names_find(&pass->clients, row->client_name);
        if (client < 0) {
            return dunlin__fail(error, DUNLIN_DATA, "data", 0,
                                "%s: a client that the training file does not have", where);
        }
        set->clients[pass->n_kept] = (int32_t)client;
    }
    uint8_t *to = set->pixels + (size_t)pass->n_kept * dunlin__data_stored_bytes(set);
    DUNLIN_TRY(write_values(pass, row->values, where, to, error));
    pass->n_kept++;
    return DUNLIN_OK;
}

static dunlin_status read_row(own_pass *pass, const dunlin_own_row *row, const char *where,
                              dunlin_error *error)
{
    const bool is_held =
        pass->is_test_file || (pass->spec->test == NULL && dunlin__own_draw_next(&pass->held));
    if (!is_held && pass->form.dtype == DUNLIN_F32) {
        add_moments(pass, row->values);
    } else if (!is_held && pass->form.dtype == DUNLIN_U8 &&
               dunlin__own_is_sampled(pass->n_trained, pass->n_train)) {
        DUNLIN_TRY(write_values(pass, row->values, where, pass->bytes, error));
        add_sums(pass);
    }
    pass->n_trained += is_held ? 0 : 1;
    return is_held == pass->is_test && pass->n_kept < pass->set->n
               ? keep_row(pass, row, where, error)
               : DUNLIN_OK;
}

static dunlin_status take_row(void *ctx, const dunlin_own_row *row, const char *where,
                              dunlin_error *error)
{
    own_pass *pass = ctx;
    dunlin_status status = DUNLIN_OK;
    if (pass->phase == PHASE_SCAN) {
        status = scan_row(pass, row, where, error);
    } else if (pass->phase == PHASE_READ) {
        status = read_row(pass, row, where, error);
    }
    pass->n++;
    return status;
}

/* --- one after the other --- */

static dunlin_status run(own_pass *pass, own_phase phase, bool is_test_file,
                         dunlin_own_read_fn read_fn, dunlin_error *error)
{
    const dunlin_own_visitor visitor = {pass, begin_file, take_row};
    pass->phase = phase;
    pass->is_test_file = is_test_file;
    pass->n = 0;
    return read_fn(&pass->set->alloc, pass->spec, is_test_file, &visitor, error);
}

/* After the scan: classes, form, who is held out. */
static dunlin_status settle(own_pass *pass, dunlin_error *error)
{
    dunlin_dataset *set = pass->set;
    set->n_classes =
        (int32_t)(pass->labels.n > 0 && !pass->are_label_numbers ? (int64_t)pass->labels.n
                                                                 : pass->largest_label + 1);
    pass->n_rows = pass->n;
    pass->n_train = pass->n;
    if (pass->spec->test == NULL) {
        pass->held = dunlin__own_draw_begin(pass->spec->seed, pass->n, pass->spec->share);
        pass->n_train -= pass->held.n_wanted;
        (void)snprintf(set->own_note, sizeof set->own_note,
                       "%" PRId64 " of %" PRId64 " examples are held out for testing, drawn with "
                       "seed %" PRIu64,
                       pass->held.n_wanted, pass->n, pass->spec->seed);
    }
    if (pass->n < 2) {
        return dunlin__fail(error, DUNLIN_DATA, "data", 0,
                            "%s: %" PRId64 " examples: at least 2 are needed", set->title, pass->n);
    }
    DUNLIN_TRY(dunlin__own_form_find(set, &pass->request->options, &pass->stored, pass->are_pixels,
                                     &pass->form, error));
    int64_t n_values = 0;
    DUNLIN_TRY(dunlin_shape_count(&pass->stored, &n_values));
    pass->n_values = (size_t)n_values;
    if (pass->form.dtype == DUNLIN_F32) {
        pass->n_moments = (size_t)pass->form.n_channels;
        pass->moments = dunlin__alloc_zeroed(&set->alloc, pass->n_moments, 3 * sizeof(double));
    } else {
        pass->bytes = dunlin__alloc_array(&set->alloc, pass->n_values, 1);
    }
    return pass->moments != NULL || pass->bytes != NULL
               ? DUNLIN_OK
               : dunlin__fail(error, DUNLIN_MEMORY, "data", 0,
                              "no memory for an example of %zu numbers", pass->n_values);
}

/* Floats are normalised where they lie; bytes when they are delivered. */
static void normalise(own_pass *pass)
{
    dunlin_dataset *set = pass->set;
    for (int32_t c = 0; pass->form.dtype == DUNLIN_U8 && c < pass->form.n_channels; c++) {
        dunlin__own_sums_end(&pass->sums[c], &set->mean[c], &set->std[c]);
    }
    if (pass->form.dtype != DUNLIN_F32 || pass->n_moments == 0) {
        return;
    }
    for (size_t m = 0; m < pass->n_moments; m++) {
        double *of = pass->moments + m * 3;
        const double deviation = of[0] > 0.0 ? sqrt(of[2] / of[0]) : 0.0;
        /* Rounding alone must not make a constant large. */
        const bool is_constant = deviation <= 1e-6 * fabs(of[1]) || deviation < 1e-12;
        of[2] = is_constant ? 1.0 : deviation;
    }
    const size_t n_each = pass->n_values / pass->n_moments;
    for (size_t i = 0; i < (size_t)set->n * pass->n_values; i++) {
        const double *of = pass->moments + i % pass->n_values / n_each * 3;
        float value = 0.0F;
        uint8_t *at = set->pixels + i * sizeof value;
        memcpy(&value, at, sizeof value);
        value = (float)(((double)value - of[1]) / of[2]);
        memcpy(at, &value, sizeof value);
    }
}

static dunlin_status load(own_pass *pass, dunlin_own_read_fn read_fn, dunlin_error *error)
{
    dunlin_dataset *set = pass->set;
    DUNLIN_TRY(run(pass, PHASE_SCAN, false, read_fn, error));
    DUNLIN_TRY(settle(pass, error));
    int64_t n = pass->is_test ? pass->n_rows - pass->n_train : pass->n_train;
    const bool is_from_test_file = pass->is_test && pass->spec->test != NULL;
    if (is_from_test_file) {
        DUNLIN_TRY(run(pass, PHASE_COUNT, true, read_fn, error));
        n = pass->n;
    }
    if (n < 1) {
        return dunlin__fail(error, DUNLIN_DATA, "data", 0, "%s: no example to test on", set->title);
    }
    n = dunlin__data_limit(pass->request, n);
    DUNLIN_TRY(dunlin__data_alloc(set, n, pass->spec->client != NULL, error));
    DUNLIN_TRY(run(pass, PHASE_READ, false, read_fn, error));
    if (pass->n == pass->n_rows && is_from_test_file) {
        DUNLIN_TRY(run(pass, PHASE_READ, true, read_fn, error));
    } else if (pass->n != pass->n_rows) {
        pass->n_kept = 0;
    }
    if (pass->n_kept != set->n) {
        return dunlin__fail(error, DUNLIN_IO, "data", 0,
                            "the files of %s changed while they were read", set->title);
    }
    normalise(pass);
    return set->clients == NULL ? DUNLIN_OK : dunlin__data_number_clients(set, error);
}

dunlin_status dunlin__own_load(dunlin_dataset *set, const dunlin_data_request *request,
                               const dunlin_own_spec *spec, dunlin_own_read_fn read_fn,
                               dunlin_error *error)
{
    own_pass *pass = dunlin__alloc_zeroed(&set->alloc, 1, sizeof *pass);
    if (pass == NULL) {
        return dunlin__fail(error, DUNLIN_MEMORY, "data", 0, "no memory to read a data set");
    }
    pass->set = set;
    pass->request = request;
    pass->spec = spec;
    pass->is_test = request->split == DUNLIN_SPLIT_TEST;
    pass->are_pixels = true;
    pass->are_label_numbers = true;
    pass->largest_label = -1;
    const dunlin_status status = load(pass, read_fn, error);
    dunlin__own_names_free(&set->alloc, &pass->labels);
    dunlin__own_names_free(&set->alloc, &pass->clients);
    dunlin__free_array(&set->alloc, pass->moments, pass->n_moments, 3 * sizeof(double));
    dunlin__free_array(&set->alloc, pass->bytes, pass->n_values, 1);
    dunlin__free_array(&set->alloc, pass, 1, sizeof *pass);
    return status;
}
