/*
 * data.h - the internal parts of a data set, and the loaders: one row for each name.
 */
#ifndef DUNLIN_DATA_DATA_H
#define DUNLIN_DATA_DATA_H

#include "data/files/bytes.h"

#include <dunlin/dataset.h>

#define DUNLIN_DATA_COLOURS 3
#define DUNLIN_DATA_MAX_CHANNELS 64 /* the features of a vector are channels of one pixel */
#define DUNLIN_DATA_MAX_CLASSES 65536
#define DUNLIN_DATA_MAX_CLIENT 65535 /* the largest number of a writer in a file */

/*
 * Of a set whose examples are not held: makes one as it is to be delivered, from any thread. On
 * failure `out_text` (DUNLIN_ERROR_TEXT_BYTES) says why.
 */
typedef struct dunlin_data_maker {
    dunlin_status (*make_fn)(const dunlin_dataset *set, int64_t index, void *out, char *out_text);
    /* The labels of an example, n_labels of them; NULL: it has one, which is held. */
    void (*labels_fn)(const dunlin_dataset *set, int64_t index, int32_t *out_labels);
    void (*free_fn)(dunlin_dataset *set);            /* gives maker_ctx back; NULL: nothing */
    uint64_t (*bytes_fn)(const dunlin_dataset *set); /* held by maker_ctx; NULL: none */
    /* Of make_fn, on this thread; NULL: it never fails. */
    const char *(*last_error_fn)(const dunlin_dataset *set);
    /* The most bytes that make_fn has taken at a time, over all threads; NULL: not counted. */
    uint64_t (*decode_peak_fn)(const dunlin_dataset *set);
} dunlin_data_maker;

#define DUNLIN_DATA_TITLE_BYTES 96
#define DUNLIN_DATA_NOTE_BYTES 192

struct dunlin_dataset {
    dunlin_alloc alloc;
    const char *title;
    bool is_synthetic;
    int64_t n;
    int32_t n_classes;
    int32_t stored_channels, stored_height, stored_width;
    int32_t channels, height, width; /* what the sources deliver */
    uint8_t *pixels;                 /* n x stored (C, H, W) */
    uint16_t *labels;
    int32_t *clients; /* NULL: no natural clients */
    int64_t n_clients;
    int32_t sequence, vocabulary; /* of a set of tokens, stored as int32; 0: images */
    int32_t n_features;           /* of a set of feature vectors, stored as float; 0: images */
    float mean[DUNLIN_DATA_MAX_CHANNELS];
    float std[DUNLIN_DATA_MAX_CHANNELS];
    /* Of a set that takes the form it was asked for; n_dims 0: one of those above. */
    dunlin_shape own_shape;
    dunlin_dtype own_dtype; /* bytes are scaled and normalised, all else is delivered as it is */
    const dunlin_data_maker *maker; /* NULL: the examples are in `pixels` */
    void *maker_ctx;
    int64_t *chosen;    /* of the maker's examples, those that are in the set; NULL: the first n */
    uint64_t made_seed; /* of a set that is drawn when it is read */
    char own_title[DUNLIN_DATA_TITLE_BYTES];
    char own_note[DUNLIN_DATA_NOTE_BYTES]; /* see dunlin_dataset_note() */
    uint64_t index_bytes;                  /* of a folder, the labels too; 0: there is no index */
    int64_t n_labels;                      /* of an example; 0: one */
    bool takes_shape; /* images of bytes are delivered in the shape that was asked for */
};

typedef struct dunlin_data_request dunlin_data_request;

/* Loaders fill the set; what they have allocated is given back by dunlin_dataset_close(). */
typedef dunlin_status (*dunlin_data_load_fn)(dunlin_dataset *set,
                                             const dunlin_data_request *request,
                                             dunlin_error *error);

/* What was asked for. */
struct dunlin_data_request {
    const char *folder;
    dunlin_split split;
    dunlin_dataset_options options;
    dunlin_data_load_fn load_glyphs; /* of the library of tools; NULL: it is not asked */
    dunlin_validation validation;    /* of the options, if has_validation */
    bool has_validation;
};

/* dunlin_dataset_open() of a request, whose options are taken from `options`. */
dunlin_status dunlin__dataset_open(const char *name, dunlin_data_request *request,
                                   const dunlin_dataset_options *options, const dunlin_alloc *hooks,
                                   dunlin_dataset **out_dataset, dunlin_error *out_error);

dunlin_status dunlin__data_load_fashion(dunlin_dataset *set, const dunlin_data_request *request,
                                        dunlin_error *error);
dunlin_status dunlin__data_load_mnist(dunlin_dataset *set, const dunlin_data_request *request,
                                      dunlin_error *error);
dunlin_status dunlin__data_load_writers(dunlin_dataset *set, const dunlin_data_request *request,
                                        dunlin_error *error);
dunlin_status dunlin__data_load_cifar10(dunlin_dataset *set, const dunlin_data_request *request,
                                        dunlin_error *error);
void dunlin__data_set_cifar10_moments(dunlin_dataset *set);
dunlin_status dunlin__data_load_cifar10_jpeg(dunlin_dataset *set,
                                             const dunlin_data_request *request,
                                             dunlin_error *error);
dunlin_status dunlin__data_load_cifar100(dunlin_dataset *set, const dunlin_data_request *request,
                                         dunlin_error *error);
dunlin_status dunlin__data_load_cifar100_coarse(dunlin_dataset *set,
                                                const dunlin_data_request *request,
                                                dunlin_error *error);
dunlin_status dunlin__data_load_wisdm(dunlin_dataset *set, const dunlin_data_request *request,
                                      dunlin_error *error);
dunlin_status dunlin__data_load_spsw(dunlin_dataset *set, const dunlin_data_request *request,
                                     dunlin_error *error);

dunlin_status dunlin__data_load_random(dunlin_dataset *set, const dunlin_data_request *request,
                                       dunlin_error *error);
dunlin_status dunlin__data_load_shapes(dunlin_dataset *set, const dunlin_data_request *request,
                                       dunlin_error *error);
dunlin_status dunlin__data_load_pairs(dunlin_dataset *set, const dunlin_data_request *request,
                                      dunlin_error *error);
dunlin_status dunlin__data_load_shakespeare(dunlin_dataset *set, const dunlin_data_request *request,
                                            dunlin_error *error);
dunlin_status dunlin__data_load_shakespeare_pairs(dunlin_dataset *set,
                                                  const dunlin_data_request *request,
                                                  dunlin_error *error);
dunlin_status dunlin__data_load_shakespeare_roles(dunlin_dataset *set,
                                                  const dunlin_data_request *request,
                                                  dunlin_error *error);
dunlin_status dunlin__data_load_made_text(dunlin_dataset *set, const dunlin_data_request *request,
                                          dunlin_error *error);
dunlin_status dunlin__data_load_made_roles(dunlin_dataset *set, const dunlin_data_request *request,
                                           dunlin_error *error);
dunlin_status dunlin__data_load_tokens(dunlin_dataset *set, const dunlin_data_request *request,
                                       dunlin_error *error);
/* Of a user's own files: "npy:...", "csv:..."; false: the name does not begin so. */
bool dunlin__data_is_own(const char *name);
dunlin_status dunlin__data_load_own(dunlin_dataset *set, const char *name,
                                    const dunlin_data_request *request, dunlin_error *error);
/* Of the library of tools. */
dunlin_status dunlin__data_load_synthetic(dunlin_dataset *set, const dunlin_data_request *request,
                                          dunlin_error *error);

/* dataset.c: a loaded set's sizes as its sources are to deliver them; MISMATCH, UNSUPPORTED. */
dunlin_status dunlin__data_settle_shape(dunlin_dataset *set, const dunlin_dataset_options *options,
                                        dunlin_error *error);

/* holdout.c: a loaded training split without what the request holds out, or that alone. */
dunlin_status dunlin__data_hold_out(dunlin_dataset *set, const dunlin_data_request *request,
                                    bool is_validation, dunlin_error *error);

/* Of an example, as stored. */
static inline size_t dunlin__data_stored_bytes(const dunlin_dataset *set)
{
    return (size_t)set->stored_channels * (size_t)set->stored_height * (size_t)set->stored_width;
}

/* Sizes as stored; then memory for n examples (and their clients). */
void dunlin__data_set_shape(dunlin_dataset *set, int32_t channels, int32_t height, int32_t width);
dunlin_status dunlin__data_alloc(dunlin_dataset *set, int64_t n, bool has_clients,
                                 dunlin_error *error);
/* The same for a set whose examples are made. */
dunlin_status dunlin__data_alloc_labels(dunlin_dataset *set, int64_t n, dunlin_error *error);

/* n, or the request's max_examples if that is less. */
int64_t dunlin__data_limit(const dunlin_data_request *request, int64_t n);

/* Is folder/file there, as it is or without ".gz"? */
bool dunlin__data_has_file(const dunlin_data_request *request, const char *file);

/* The clients' numbers as they stand in the file, 0 to DUNLIN_DATA_MAX_CLIENT, become 0 to n - 1,
 * in ascending order. */
dunlin_status dunlin__data_number_clients(dunlin_dataset *set, dunlin_error *error);

/* Opens folder/file, or the same without ".gz"; `path` is storage for the name, to outlive `bytes`.
 */
#define DUNLIN_DATA_PATH_BYTES 4096
dunlin_status dunlin__data_open_file(dunlin_dataset *set, const dunlin_data_request *request,
                                     const char *file, char *path, dunlin_bytes *bytes,
                                     dunlin_error *error);

/* One stored image of a plane to another size, linearly between pixel centres. */
void dunlin__data_resize(const uint8_t *from, int32_t from_height, int32_t from_width, uint8_t *to,
                         int32_t height, int32_t width);

#endif
