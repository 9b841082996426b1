/*
 * dataset.h - ready-made data sets of small images and of activity, and how to split one among
 * clients.
 *
 * A data set is decoded once into memory (one byte per channel and pixel, four per feature) and
 * read-only from then on: any number of sources, clients and threads may share it. Sources borrow
 * it, so close it last.
 *
 * Names and the files looked for below the data folder (each also without ".gz"):
 *   "synthetic"      none: handwriting-like glyphs that are drawn, see below; of the library
 *                    dunlin_tools, opened with dunlin_tools_dataset_open() of <dunlin/tools.h>
 *   "synthetic_tokens"  none: token sequences with words typical of their class, made likewise
 *   "random"         none: numbers drawn from a normal distribution, or tokens, in the shape that
 *                    is asked for (options.shape; (1, 28, 28) otherwise), with labels drawn alike:
 *                    nothing can be learnt, any model can be stepped. max_examples of them: 1024
 *                    for training, 256 for testing otherwise
 *   "shapes"         none: images of discs, squares and triangles on noisy grounds, drawn when they
 *                    are read, with a label for each pixel (0 the ground, 1 to 3): (3, 32, 32), or
 *                    options.shape. As many as of "random"
 *   "shakespeare"    tinyshakespeare/input.txt: what roles say, as rows of 64 tokens (or
 *                    options.shape, options.sequence) with the next token as the label of each.
 *                    Tokens are the distinct bytes, in ascending order. The last tenth of what a
 *                    role says is the test split. Roles are the natural clients
 *   "shakespeare_bpe"  the same with tokens that are joined from pairs of bytes, most frequent pair
 *                    first, learnt from the training split: 1,024 of them or options.vocabulary,
 *                    at most 16,384. dunlin_dataset_note() has a checksum of what they stand for
 *   "made_text"      none: what made roles say, by bytes, from the seed
 *   "shakespeare_roles"  tinyshakespeare/input.txt: who says it? Speeches of the ten roles
 *                    (options.classes) that have the most, as rows of 64 tokens (or options.shape,
 *                    options.sequence) of byte pairs, 1,024 or options.vocabulary: 1 stands before
 *                    a speech, 0 is padding behind it. The last tenth of a role's speeches is the
 *                    test split. Roles are the natural clients, so each has one class
 *   "made_roles"     none: the same of made roles, from the seed
 *   "fashion_mnist"  fashion-mnist/{train,t10k}-{images-idx3,labels-idx1}-ubyte.gz
 *   "mnist"          mnist/{train,t10k}-{images-idx3,labels-idx1}-ubyte.gz
 *   "mnist_writers"  the same, and mnist-writers/qmnist-{train,test}-labels-idx2-int.gz
 *   "cifar10"        cifar10/cifar10-jpeg5k-train.bin.gz, cifar10-jpeg1k-test.bin.gz; or the
 *                    original cifar10/data_batch_{1..5}.bin, test_batch.bin
 *   "cifar10_jpeg"   cifar10-jpeg/{train,test}/CLASS/NNNN.jpg (unpack cifar10-jpeg.tar.xz): the
 *                    JPEG copy in full, 50,000 and 10,000 pictures, decoded once when it is opened.
 *                    In an order of its own, one picture of each class after the other, so that
 *                    the first N are as many of each
 *   "cifar100"       cifar100/train.bin, test.bin of the binary version (or of
 *                    cifar-100-binary/): the 100 fine classes
 *   "cifar100_coarse"  the same files, the 20 coarse classes
 *   "wisdm"          wisdm/WISDM_ar_v1.1_transformed.arff.gz, or .csv.gz with a line of names: 43
 *                    features of 10 s of a phone's accelerometer, 6 activities, 36 users
 *   "spsw_har"       spsw-har/DATA/sNN/sNN_EE_{sp,sw}.csv.gz (unpack spsw-har-DATA.tar.xz): phone
 *                    and watch, 5 activities, 23 subjects. Windows of 100 samples, one begins every
 *                    50, of one activity and without a pause above 500 ms; of each of six axes
 *                    mean, deviation, least, most, mean step and the second half's mean less the
 *                    first's, and 1 for the watch: 37 features
 *
 * The last two deliver floats of shape (features, 1, 1), so "har_mlp" of the zoo with that many
 * channels and image 1 takes them. Users are the natural clients; those whose number is divisible
 * by four are the test split. Mean and deviation are those of each feature over the whole training
 * split. A value that is missing ("?" or nothing) becomes the mean; it does not count towards it.
 *
 * The synthetic set is not data about the world. Ten digit-like figures are described as strokes;
 * each writer has a style of their own (slant, size, proportions, pen, habits) and no two examples
 * are alike. Every example follows from (seed, split, writer, index) alone. Writers of the test
 * split never appear in the training split.
 *
 * And a user's own files, each name with the files in it:
 *   "npy:X,Y"        NumPy arrays of examples and labels (u1, i4, i8, f4, f8; C order), or
 *                    "npy:X,Y,X_TEST,Y_TEST", or "npy:FILE.npz" with x_train, y_train, x_test,
 *                    y_test, or x and y
 *   "csv:FILE"       a row an example, numbers and a label; behind commas label=COLUMN (the last
 *                    one otherwise) and client=COLUMN (whose example it is). Labels that are no
 *                    whole numbers become classes in the order of their names
 *   "folder:DIR"     JPEG and PNG files, a folder a class: DIR/train/CLASS and DIR/test/CLASS (or
 *                    val, validation), or DIR/CLASS. They are decoded when they are read, on any
 *                    thread, in memory of the C library (options.decode_bytes); 20 bytes and a
 *                    name a file are held. The shorter side gets the size that is asked for, the
 *                    centre is kept
 * Behind them test=FILE (csv), test=FOLDER (folder), or test=N% and seed=N: without a test part a
 * share, 20%, is held out, drawn by that seed (0) and no other, so that all programs have the same
 * splits; dunlin_dataset_note() tells. Whole numbers from 0 to 255 in the shape of an image are
 * bytes; other numbers become floats, normalised with the mean and the deviation of the training
 * part, by feature, or by channel where an example has several dimensions.
 *
 * Example: the third of 48 clients' examples as a source, each class shared out unevenly.
 *
 * @code
 * dunlin_error error = {0};
 * dunlin_dataset *data = NULL;
 * dunlin_partition *partition = NULL;
 * dunlin_partition_options options = DUNLIN_PARTITION_OPTIONS_INIT;
 * dunlin_dataset_view view;
 * dunlin_source source;
 * int64_t n = 0;
 * options.kind = DUNLIN_PARTITION_DIRICHLET;
 * options.n_clients = 48;
 * options.alpha = 0.3;
 * if (dunlin_dataset_open("cifar10", "data", DUNLIN_SPLIT_TRAIN, NULL, NULL, &data, &error) !=
 *         DUNLIN_OK ||
 *     dunlin_partition_create(data, &options, NULL, &partition, &error) != DUNLIN_OK) {
 *     printf("%s\n", error.text);
 *     return 1;
 * }
 * const int64_t *indices = dunlin_partition_indices(partition, 2, &n);
 * if (dunlin_dataset_subset(data, indices, n, &view, &source) == DUNLIN_OK) {
 *     printf("%d examples of %d classes\n", (int)n, (int)dunlin_dataset_n_classes(data));
 * }
 * dunlin_partition_destroy(partition);
 * dunlin_dataset_close(data);
 * @endcode
 */
#ifndef DUNLIN_DATASET_H
#define DUNLIN_DATASET_H

#include <dunlin/alloc.h>
#include <dunlin/source.h>
#include <dunlin/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dunlin_dataset dunlin_dataset;

typedef enum dunlin_split {
    DUNLIN_SPLIT_TRAIN = 0,
    DUNLIN_SPLIT_TEST = 1,
    DUNLIN_SPLIT_VALIDATION = 2 /* what options.validation holds out of the training split */
} dunlin_split;

/* Which examples of a training split are held out to choose by, as a learning rate, so that the
 * test split is not looked at. They follow from the data set, how many of its examples there are,
 * and this. */
typedef struct dunlin_validation {
    size_t struct_size;
    double share;       /* of the examples, or of the clients with by_client: above 0, below 1 */
    int64_t n_examples; /* 0: by share. Else so many; with by_client whole clients until there are
                           so many or more */
    uint64_t seed;
    bool by_client; /* whole natural clients (writers, users), so that, as in a test split of other
                       people, nobody is in both parts */
} dunlin_validation;

#define DUNLIN_VALIDATION_INIT DUNLIN_SIZED_INIT(dunlin_validation)

typedef struct dunlin_dataset_options {
    size_t struct_size;
    int64_t max_examples; /* keep the first so many; 0: all */
    int32_t image;        /* height and width the sources deliver, resized as they are read (at
                             most 4096); 0: as stored */
    int32_t channels;     /* 3 from a set of grey images: the grey three times; 0: as stored */
    uint64_t seed;        /* synthetic: another seed is another world of writers */
    int64_t n_writers;    /* synthetic: of this split; 0: 240 for training, 60 for testing */
    int64_t n_per_writer; /* synthetic: on average (half to one and a half times); 0: 50 */
    int32_t sequence;     /* synthetic_tokens: tokens of an example, 1 to 65536 */
    int32_t vocabulary;   /* synthetic_tokens: tokens are below it, 2 or more. random and npy: above
                             0, the inputs are tokens */
    dunlin_shape shape;   /* what the model takes, without the batch: random and a user's own files
                             have it if they can; n_dims 0: not said. Others do not look at it */
    int32_t classes;      /* random: labels are below it, at most 65536; roles: so many; 0: 10.
                             synthetic_tokens: the most, 10 otherwise */
    uint64_t index_bytes; /* folder: the most that its index may take, which is counted before it is
                             made; BUDGET with the number of files otherwise. 0: any number */
    uint64_t decode_bytes; /* folder: the most that decoding and resizing may take at a time, on all
                              threads together, which then wait for each other; a picture that
                              takes more alone is refused by name. 0: 192 MiB on each thread.
                              glibc may keep up to 64 MiB that a thread has freed for that thread,
                              unless the app sets mallopt(M_MMAP_THRESHOLD) */
    const dunlin_validation *validation; /* borrowed for the call; NULL: nothing is held out. Else
                                            DUNLIN_SPLIT_TRAIN is without what is held out, which
                                            is DUNLIN_SPLIT_VALIDATION, each in the set's order;
                                            means and deviations are of both together. max_examples
                                            counts both. The test split is as without */
    /* npy with inputs=N: what the model's inputs take, without the batch, in their order, and
     * above 0 where they are tokens. n_inputs 0: not said. Borrowed for the call. */
    const dunlin_shape *input_shapes;
    const int64_t *input_vocabularies;
    int32_t n_inputs;
} dunlin_dataset_options;

#define DUNLIN_DATASET_OPTIONS_INIT DUNLIN_SIZED_INIT(dunlin_dataset_options)

/** @return the i-th name that dunlin_dataset_open() knows, or NULL past the last. */
DUNLIN_API const char *dunlin_dataset_known(int32_t index);

/**
 * Opens one split of a data set. `folder` holds the folders named above; NULL or "" will do for
 * "synthetic_tokens" only. `options` and `hooks` may be NULL.
 *
 * @return OK; ARGUMENT, VERSION (options), UNSUPPORTED (unknown name: the text lists the known
 * ones; "synthetic"), IO (a file cannot be read: which), DATA (a file is cut off, damaged or of
 * another format: which file, what, and the limit; or too few examples or clients to hold some
 * out), MISMATCH (two files disagree), BUDGET (index_bytes), LIMIT, MEMORY.
 * *out_dataset is NULL then.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_dataset_open(
    const char *name, const char *folder, dunlin_split split, const dunlin_dataset_options *options,
    const dunlin_alloc *hooks, dunlin_dataset **out_dataset, dunlin_error *out_error);

/** NULL is fine. Every source over it must be out of use. */
DUNLIN_API void dunlin_dataset_close(dunlin_dataset *dataset);

/** @return for people: "Fashion-MNIST", "CIFAR-10 (JPEG copy)", "synthetic handwriting-like
 * glyphs". */
DUNLIN_API const char *dunlin_dataset_title(const dunlin_dataset *dataset);
/** @return what there is to say about how it was read, as which examples are held out for testing:
 * one line, "" if there is nothing. */
DUNLIN_API const char *dunlin_dataset_note(const dunlin_dataset *dataset);
/** @return whether it is drawn or made by this library, not data about the world. */
DUNLIN_API bool dunlin_dataset_is_synthetic(const dunlin_dataset *dataset);

/** @return the shape of an example as the sources deliver it: (C, H, W), or (tokens). */
DUNLIN_API dunlin_shape dunlin_dataset_shape(const dunlin_dataset *dataset);
/** @return examples of this split. */
DUNLIN_API int64_t dunlin_dataset_n_examples(const dunlin_dataset *dataset);
/** @return labels are below it. */
DUNLIN_API int32_t dunlin_dataset_n_classes(const dunlin_dataset *dataset);
/** @return the labels of an example: one for each pixel of "shapes" and each token of a text, else
 * 1. */
DUNLIN_API int64_t dunlin_dataset_n_labels(const dunlin_dataset *dataset);
/** @return bytes held until it is closed. */
DUNLIN_API uint64_t dunlin_dataset_bytes(const dunlin_dataset *dataset);
/** @return those of them that a folder's index takes, the labels included; 0 of other sets. */
DUNLIN_API uint64_t dunlin_dataset_index_bytes(const dunlin_dataset *dataset);
/** @return the most bytes that decoding pictures has taken at a time so far, beside those; 0 of
 * sets that decode none, and without options.decode_bytes. From any thread. */
DUNLIN_API uint64_t dunlin_dataset_decode_peak(const dunlin_dataset *dataset);

/**
 * @return the examples as they are stored, one after the other, in order: a byte for each channel
 * and pixel, a float for each feature, an int32 for each token. Borrowed; for a checksum of what
 * was trained on. NULL, and 0 bytes, of "random", "shapes", texts and folders: their
 * examples are made when they are read.
 */
DUNLIN_API const void *dunlin_dataset_stored(const dunlin_dataset *dataset, uint64_t *out_n_bytes);

/** @return 0 to n_classes - 1; -1 if there is no such example. */
DUNLIN_API int32_t dunlin_dataset_label(const dunlin_dataset *dataset, int64_t example_index);

/** @return the number of natural clients (writers, users, subjects), which are numbered from 0; 0
 * of a set without them. */
DUNLIN_API int64_t dunlin_dataset_n_natural_clients(const dunlin_dataset *dataset);
/** @return whose example it is; -1 of a set without natural clients, or if there is no such
 * example. */
DUNLIN_API int64_t dunlin_dataset_client_of(const dunlin_dataset *dataset, int64_t example_index);

/**
 * Which examples of an open training split `validation` holds out, where both parts are wanted of
 * one set: *out_n_train examples to train on, then the others, both ascending. `out_indices`: the
 * caller's, n_examples of the set.
 *
 * @return OK; ARGUMENT (share, n_examples), VERSION, UNSUPPORTED (by_client of a set that does not
 * say whose its examples are), DATA (nothing would be left on one side), MEMORY.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status
dunlin_dataset_hold_out(const dunlin_dataset *dataset, const dunlin_validation *validation,
                        int64_t *out_indices, int64_t *out_n_train, dunlin_error *out_error);

/** dunlin_dataset_source() into a struct of so many bytes: those that the app's header knows. */
DUNLIN_API void dunlin_dataset_fill_source(const dunlin_dataset *dataset, dunlin_source *out_source,
                                           size_t source_bytes);

/**
 * All examples as a source for a trainer: bytes, scaled by 1/255 and normalised with the mean and
 * the deviation of the training split; features as floats, normalised likewise, one by one; tokens
 * as they are, int32. Reading copies out of memory, or decodes;
 * from any thread, several at a time. The text of a failure is that of the thread that asks.
 */
static inline void dunlin_dataset_source(const dunlin_dataset *dataset, dunlin_source *out_source)
{
    dunlin_dataset_fill_source(dataset, out_source, sizeof *out_source);
}

/** The examples of one client: example i of the source is example indices[i] of the data set.
 * Filled in by dunlin_dataset_subset(). This struct is frozen. */
typedef struct dunlin_dataset_view {
    const dunlin_dataset *dataset;
    const int64_t *indices;
    int64_t n;
} dunlin_dataset_view;

/** dunlin_dataset_subset() into a struct of so many bytes. @return as that. */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_dataset_fill_subset(
    const dunlin_dataset *dataset, const int64_t *indices, int64_t n, dunlin_dataset_view *view,
    dunlin_source *out_source, size_t source_bytes);

/**
 * Some examples as a source. `view` is storage of the caller's for the source's context, and like
 * `indices` (borrowed, n of them) must stay in place as long as the source is used. Nothing is
 * allocated.
 *
 * @return OK; ARGUMENT if an index is outside the data set.
 */
DUNLIN_NODISCARD static inline dunlin_status
dunlin_dataset_subset(const dunlin_dataset *dataset, const int64_t *indices, int64_t n,
                      dunlin_dataset_view *view, dunlin_source *out_source)
{
    return dunlin_dataset_fill_subset(dataset, indices, n, view, out_source, sizeof *out_source);
}

/** Who gets which examples: 8 bytes per example, and 8 per client. Read-only, like the data set. */
typedef struct dunlin_partition dunlin_partition;

typedef enum dunlin_partition_kind {
    DUNLIN_PARTITION_IID = 0, /* shuffled, the same number for each (or one more) */
    DUNLIN_PARTITION_DIRICHLET =
        1,                       /* each class is shared out by a Dirichlet draw over the clients */
    DUNLIN_PARTITION_NATURAL = 2 /* by writer: an example goes where it came from */
} dunlin_partition_kind;

typedef struct dunlin_partition_options {
    size_t struct_size;
    dunlin_partition_kind kind;
    /* NATURAL: 0 means one for each writer; fewer clients than writers get several whole writers
     * each. */
    int64_t n_clients;
    double alpha; /* DIRICHLET: concentration, > 0; 0.1 is very skewed, 100 nearly even */
    /* DIRICHLET: clients below it take examples from the largest. 0: 10, or an even share if that
     * is less. */
    int64_t min_examples;
    uint64_t seed;
    /* NATURAL: more clients than writers are fine, and each then has a part of one writer's
     * examples; writers with many are shared by more clients. */
    bool shares_writers;
} dunlin_partition_options;

#define DUNLIN_PARTITION_OPTIONS_INIT DUNLIN_SIZED_INIT(dunlin_partition_options)

/**
 * Splits all examples of a data set among clients: every example belongs to exactly one, and the
 * same options give the same split. The data set is not needed afterwards.
 *
 * @return OK; ARGUMENT (no clients, fewer examples than clients need, alpha), VERSION, UNSUPPORTED
 * (NATURAL: no writers are known), MEMORY. *out_partition is NULL then.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_partition_create(
    const dunlin_dataset *dataset, const dunlin_partition_options *options,
    const dunlin_alloc *hooks, dunlin_partition **out_partition, dunlin_error *out_error);
/** NULL is fine. */
DUNLIN_API void dunlin_partition_destroy(dunlin_partition *partition);
/** @return among how many clients it was split. */
DUNLIN_API int64_t dunlin_partition_n_clients(const dunlin_partition *partition);
/** @return a client's examples, ascending; they belong to the partition. NULL and 0 if there is no
 * such client. */
DUNLIN_API const int64_t *dunlin_partition_indices(const dunlin_partition *partition,
                                                   int64_t client_index, int64_t *out_n);

#ifdef __cplusplus
}
#endif

#endif
