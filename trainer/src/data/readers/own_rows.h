/*
 * own_rows.h - data sets of a user's own files that are tables: a row an example, numbers and a
 * label.
 *
 * A name says which files: "npy:X,Y", "npy:FILE.npz" or "csv:FILE", and after commas
 *   test=FILE    the test split (npy: two more files in place of it, "npy:X,Y,X_TEST,Y_TEST")
 *   test=N%      without a file a share is held out for testing, drawn by the seed; 20%
 *   seed=N       of that draw; 0. It is not the seed of a training run, so that all programs that
 *                open the same name have the same splits
 *   inputs=N     npy: N arrays an example, one for each input of the model: "npy:A,B,Y,inputs=2",
 * or with as many files again, "npy:A,B,Y,A_TEST,B_TEST,Y_TEST,inputs=2" label=NAME   csv: the
 * column of labels; the last one client=NAME  csv: the column that says whose example it is; none
 */
#ifndef DUNLIN_DATA_OWN_ROWS_H
#define DUNLIN_DATA_OWN_ROWS_H

#include "data/common/data.h"

#define DUNLIN_OWN_MAX_INPUTS 16
#define DUNLIN_OWN_MAX_FILES (2 * (DUNLIN_OWN_MAX_INPUTS + 1))

/* What a name says. The texts are parts of `text`, which is freed with the set's allocator. */
typedef struct dunlin_own_spec {
    char *text;
    size_t text_bytes;
    const char *files[DUNLIN_OWN_MAX_FILES];
    int32_t n_files;
    int32_t n_inputs;           /* 0: not said */
    const char *label, *client; /* NULL: not said */
    const char *test;           /* a file; NULL: none */
    double share;               /* held out, if there is no file */
    uint64_t seed;
} dunlin_own_spec;

/* Takes apart what follows "npy:", "csv:" or "folder:". Nothing is held on failure. */
dunlin_status dunlin__own_parse(const dunlin_alloc *alloc, const char *spec,
                                dunlin_own_spec *out_spec, dunlin_error *error);
void dunlin__own_free(const dunlin_alloc *alloc, dunlin_own_spec *spec);

/* One example; names are of the label and the client, NULL where a number is the label, or nobody
 * is known. */
typedef struct dunlin_own_row {
    const double *values; /* finite */
    double label;         /* finite */
    const char *label_name;
    const char *client_name;
} dunlin_own_row;

/* Takes the rows of a file: first `begin_fn` with the shape of an example as it is stored, then
 * each row in its order. `where` is how messages call the row, "x.csv:7". */
typedef struct dunlin_own_visitor {
    void *ctx;
    dunlin_status (*begin_fn)(void *ctx, const char *file, const dunlin_shape *shape,
                              dunlin_error *error);
    dunlin_status (*row_fn)(void *ctx, const dunlin_own_row *row, const char *where,
                            dunlin_error *error);
} dunlin_own_visitor;

/* Gives all rows of the training files, or of those of the test split, to the visitor. */
typedef dunlin_status (*dunlin_own_read_fn)(const dunlin_alloc *alloc, const dunlin_own_spec *spec,
                                            bool is_test, const dunlin_own_visitor *visitor,
                                            dunlin_error *error);

/* own_npy.c, own_csv.c */
dunlin_status dunlin__own_read_npy(const dunlin_alloc *alloc, const dunlin_own_spec *spec,
                                   bool is_test, const dunlin_own_visitor *visitor,
                                   dunlin_error *error);
dunlin_status dunlin__own_read_csv(const dunlin_alloc *alloc, const dunlin_own_spec *spec,
                                   bool is_test, const dunlin_own_visitor *visitor,
                                   dunlin_error *error);
/* Whether the files have a test split of their own: sets spec->test. */
dunlin_status dunlin__own_npy_find_test(dunlin_own_spec *spec, dunlin_error *error);
/* The rows of one open file. */
dunlin_status dunlin__own_read_csv_rows(const dunlin_alloc *alloc, const dunlin_own_spec *spec,
                                        dunlin_bytes *bytes, const dunlin_own_visitor *visitor,
                                        dunlin_error *error);
dunlin_status dunlin__own_read_npy_rows(const dunlin_alloc *alloc, dunlin_bytes *x, dunlin_bytes *y,
                                        const dunlin_own_visitor *visitor, dunlin_error *error);

/* Texts that are met, each once, in their order. */
typedef struct dunlin_own_names {
    char **names;
    size_t n, capacity;
} dunlin_own_names;

/* Adds a text that is not there yet; LIMIT beyond `most`. */
dunlin_status dunlin__own_names_add(const dunlin_alloc *alloc, dunlin_own_names *names,
                                    const char *name, size_t most, const char *what,
                                    dunlin_error *error);
/* Its place; -1: it is not there. */
int64_t dunlin__own_names_find(const dunlin_own_names *names, const char *name);
void dunlin__own_names_free(const dunlin_alloc *alloc, dunlin_own_names *names);

/*
 * Reads the rows twice (of a test file besides) and fills the set. Numbers that are all whole, from
 * 0 to 255, in the shape of an image are kept as bytes, and each channel is normalised as it is
 * delivered, with the mean and the deviation over up to DUNLIN_OWN_MOMENTS training examples,
 * spread evenly; a model that reads tokens gets whole numbers below its vocabulary; all else is
 * kept as floats that are normalised once: by feature, or by channel where an example has more
 * dimensions than one.
 */
dunlin_status dunlin__own_load(dunlin_dataset *set, const dunlin_data_request *request,
                               const dunlin_own_spec *spec, dunlin_own_read_fn read_fn,
                               dunlin_error *error);

#endif
