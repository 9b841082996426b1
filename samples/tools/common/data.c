/*
 * data.c - which data set a program works on.
 */
#include "data.h"

#include <dunlin/pixels.h>
#include <dunlin/several.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define TOKENS "synthetic_tokens"
#define MADE_TEXT "made_text"
#define SPEECH_TOKENS 1024
#define SPEECH_LENGTH 64
#define PASSES 2 /* over the files of a user's tables: to count, then to take */

const char *data_choose(const char *data, const char *dataset, data_choice *out_choice)
{
    bool is_synthetic = data != NULL && strcmp(data, "synthetic") == 0;
    if (is_synthetic && dataset != NULL && strcmp(dataset, "synthetic") != 0) {
        return "--data synthetic goes with --dataset synthetic or none";
    }
    const char *environment = getenv("DUNLIN_DATA");
    out_choice->folder = data;
    if (is_synthetic) {
        out_choice->folder = NULL;
    } else if (data == NULL && environment != NULL && environment[0] != '\0') {
        out_choice->folder = environment;
    }
    out_choice->name = dataset;
    if (dataset == NULL) {
        out_choice->name = data == NULL || is_synthetic ? "synthetic" : "fashion_mnist";
    }
    return NULL;
}

static bool begins(const char *name, const char *prefix)
{
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

bool data_is_folder(const data_choice *choice)
{
    return begins(choice->name, "folder:");
}

/* A user's own files. */
static bool is_own(const data_choice *choice)
{
    return begins(choice->name, "npy:") || begins(choice->name, "csv:") || data_is_folder(choice);
}

bool data_is_speeches(const data_choice *choice)
{
    return strcmp(choice->name, "shakespeare_roles") == 0 ||
           strcmp(choice->name, "made_roles") == 0;
}

bool data_is_text(const data_choice *choice)
{
    return !data_is_speeches(choice) &&
           (begins(choice->name, "shakespeare") || strcmp(choice->name, MADE_TEXT) == 0);
}

bool data_has_own_shape(const data_choice *choice)
{
    return is_own(choice) || strcmp(choice->name, "random") == 0 ||
           strcmp(choice->name, "shapes") == 0 || strcmp(choice->name, "pairs") == 0 ||
           data_is_text(choice);
}

const char *data_check_name(const data_choice *choice)
{
    static _Thread_local char why[384];
    size_t at = (size_t)snprintf(why, sizeof why, "--dataset %.80s: expected one of", choice->name);
    for (int32_t i = 0; dunlin_dataset_known(i) != NULL && at < sizeof why; i++) {
        if (is_own(choice) || strcmp(dunlin_dataset_known(i), choice->name) == 0) {
            return NULL;
        }
        at += (size_t)snprintf(why + at, sizeof why - at, "%s %s", i == 0 ? "" : ",",
                               dunlin_dataset_known(i));
    }
    if (at < sizeof why) {
        (void)snprintf(why + at, sizeof why - at, ", npy:X,Y, csv:FILE, folder:DIR");
    }
    return why;
}

/* Bytes of the files that a name of one's own tables lists, one after another before its options;
 * 0: it lists none that is there. */
static int64_t bytes_of_files(const char *names)
{
    char path[1024];
    int64_t bytes = 0;
    for (size_t n = strcspn(names, ","); n > 0 && memchr(names, '=', n) == NULL;
         n = strcspn(names, ",")) {
        struct stat info;
        (void)snprintf(path, sizeof path, "%.*s", (int)(n < sizeof path ? n : 0), names);
        bytes += stat(path, &info) == 0 && S_ISREG(info.st_mode) ? (int64_t)info.st_size : 0;
        names += n + (names[n] == ',' ? 1 : 0);
    }
    return bytes;
}

void data_begin_reading(const data_choice *choice, progress *line)
{
    char what[PROGRESS_WHAT_BYTES];
    const bool is_table = is_own(choice) && !data_is_folder(choice);
    (void)snprintf(what, sizeof what, "%s %.80s", data_is_folder(choice) ? "scanning" : "reading",
                   choice->name);
    progress_begin_reading(line, what,
                           is_table ? PASSES * bytes_of_files(strchr(choice->name, ':') + 1) : 0);
}

/* What differs from small grey images of ten classes. */
static const struct {
    const char *name;
    int32_t channels, n_features, classes;
} special[] = {
    {"cifar10", 3, 0, 0},      {"cifar10_jpeg", 3, 0, 0},
    {"cifar100", 3, 0, 100},   {"cifar100_coarse", 3, 0, 20},
    {"wisdm", 43, 43, 6},      {"spsw_har", 37, 37, 5},
    {"shapes", 3, 0, 4},       {"pairs", 1, 0, 2},
    {"shakespeare", 0, 0, 65}, {"shakespeare_bpe", 0, 0, 1024},
    {MADE_TEXT, 0, 0, 28},     {"shakespeare_roles", 0, 0, 10},
    {"made_roles", 0, 0, 10},
};
#define N_SPECIAL (sizeof special / sizeof special[0])

/* Its row above; N_SPECIAL: it has none. */
static size_t find_special(const data_choice *choice)
{
    size_t i = 0;
    while (i < N_SPECIAL && strcmp(special[i].name, choice->name) != 0) {
        i++;
    }
    return i;
}

/* Of a user's files: they are read for it. Wrong ones are reported when they are opened for
 * training. */
static void fill_from_own(const data_choice *choice, const char *model, dunlin_zoo_options *options)
{
    dunlin_dataset *set = NULL;
    dunlin_dataset_options set_options = DUNLIN_DATASET_OPTIONS_INIT;
    set_options.index_bytes = choice->index_bytes;
    progress line;
    data_begin_reading(choice, &line);
    const dunlin_status status = dunlin_dataset_open(
        choice->name, choice->folder, DUNLIN_SPLIT_TRAIN, &set_options, NULL, &set, NULL);
    progress_end(&line);
    if (status != DUNLIN_OK) {
        return;
    }
    const dunlin_shape shape = dunlin_dataset_shape(set);
    const bool is_image = shape.n_dims == 3 && shape.dims[1] * shape.dims[2] > 1;
    if (options->classes == 0) {
        options->classes = dunlin_dataset_n_classes(set);
    }
    if (options->channels == 0 && (is_image || strcmp(model, "har_mlp") == 0)) {
        options->channels = (int32_t)shape.dims[0];
    }
    if (options->image == 0 && is_image && shape.dims[1] == shape.dims[2]) {
        options->image = (int32_t)shape.dims[1];
    } else if (options->image == 0 && strcmp(model, "har_mlp") == 0) {
        options->image = 1;
    }
    dunlin_dataset_close(set);
}

void data_fill_zoo(const data_choice *choice, const char *model, dunlin_zoo_options *options)
{
    if (is_own(choice)) {
        fill_from_own(choice, model, options);
        return;
    }
    const size_t i = find_special(choice);
    if (i == N_SPECIAL) {
        return;
    }
    if (options->channels == 0) {
        options->channels = special[i].channels;
    }
    if (options->classes == 0) {
        options->classes = special[i].classes;
    }
    if (options->vocabulary == 0 && data_is_text(choice)) {
        options->vocabulary = options->classes;
    }
    if (options->vocabulary == 0 && data_is_speeches(choice)) {
        options->vocabulary = SPEECH_TOKENS;
        options->sequence = options->sequence == 0 ? SPEECH_LENGTH : options->sequence;
    }
    if (options->image == 0 && special[i].n_features > 0) {
        options->image = 1;
    }
}

int32_t data_n_features(const data_choice *choice)
{
    const size_t i = find_special(choice);
    return i == N_SPECIAL ? 0 : special[i].n_features;
}

const char *data_default_model(const data_choice *choice)
{
    if (strcmp(choice->name, "shapes") == 0) {
        return "unet_small";
    }
    if (strcmp(choice->name, "pairs") == 0) {
        return "siamese";
    }
    if (data_is_text(choice)) {
        return "gpt_tiny";
    }
    if (data_is_speeches(choice)) {
        return "bert_tiny";
    }
    return data_n_features(choice) > 0 || begins(choice->name, "csv:") ? "har_mlp" : "lenet5";
}

/* What each of the model's inputs takes; the tables stay until the thread asks again. */
static void fill_inputs(const dunlin_model *model, dunlin_dataset_options *options)
{
    static _Thread_local dunlin_shape shapes[DUNLIN_MODEL_MAX_INPUTS];
    static _Thread_local int64_t vocabularies[DUNLIN_MODEL_MAX_INPUTS];
    const int32_t n = dunlin_model_n_inputs(model);
    for (int32_t i = 0; i < n && n <= DUNLIN_MODEL_MAX_INPUTS; i++) {
        dunlin_model_input input = DUNLIN_MODEL_INPUT_INIT;
        if (dunlin_model_get_input(model, i, &input) == DUNLIN_OK) {
            shapes[i] = input.shape;
            vocabularies[i] = input.vocabulary;
        }
    }
    options->input_shapes = shapes;
    options->input_vocabularies = vocabularies;
    options->n_inputs = n <= DUNLIN_MODEL_MAX_INPUTS ? n : 0;
}

/* Square pictures, for an input (C, H, W) or (H, W, C). False: it takes others, or none. */
static bool fit_pictures(const dunlin_model *model, dunlin_dataset_options *options)
{
    const dunlin_shape shape = dunlin_model_input_shape(model);
    dunlin_model_input input = DUNLIN_MODEL_INPUT_INIT;
    const bool is_last = dunlin_model_n_inputs(model) == 1 &&
                         dunlin_model_get_input(model, 0, &input) == DUNLIN_OK &&
                         input.is_channels_last;
    const int32_t height = is_last ? 0 : 1; /* among the dimensions */
    if (shape.n_dims != 3 || shape.dims[height] != shape.dims[height + 1] ||
        shape.dims[height] > 4096) {
        return false;
    }
    options->image = (int32_t)shape.dims[height];
    options->channels = (int32_t)shape.dims[is_last ? 2 : 0];
    return true;
}

/* A class for each row of tokens. */
static const char *fit_speeches(const data_choice *choice, const dunlin_model *model,
                                const char *model_name, dunlin_dataset_options *options)
{
    static _Thread_local char why[256];
    const dunlin_shape shape = dunlin_model_input_shape(model);
    if (dunlin_model_vocabulary(model) == 0 || shape.n_dims != 1 ||
        dunlin_model_n_labels(model) != 1) {
        (void)snprintf(why, sizeof why,
                       "%s has rows of tokens with a class each, which %s does not take: bert_tiny "
                       "does",
                       choice->name, model_name);
        return why;
    }
    options->shape = shape;
    options->vocabulary = (int32_t)dunlin_model_vocabulary(model);
    options->classes = (int32_t)dunlin_model_n_outputs(model);
    return NULL;
}

const char *data_fit(const data_choice *choice, const dunlin_model *model, const char *model_name,
                     const char **out_name, dunlin_dataset_options *options)
{
    static _Thread_local char why[256];
    const dunlin_shape shape = dunlin_model_input_shape(model);
    const bool predicts_tokens = dunlin_model_vocabulary(model) > 0 && shape.n_dims == 1 &&
                                 dunlin_model_n_labels(model) == shape.dims[0];
    const bool takes_made = predicts_tokens && strcmp(choice->name, "synthetic") == 0;
    *out_name = takes_made ? MADE_TEXT : choice->name;
    if (data_is_text(choice) && !predicts_tokens) {
        (void)snprintf(why, sizeof why,
                       "%s has tokens to predict, which %s does not: gpt_tiny does", choice->name,
                       model_name);
        return why;
    }
    if (takes_made || data_has_own_shape(choice)) {
        options->shape = shape;
        options->vocabulary = (int32_t)dunlin_model_vocabulary(model);
        options->classes = (int32_t)dunlin_model_n_outputs(model);
        fill_inputs(model, options);
        return NULL;
    }
    if (data_is_speeches(choice)) {
        return fit_speeches(choice, model, model_name, options);
    }
    if (dunlin_model_vocabulary(model) > 0 && shape.n_dims == 1) {
        if (strcmp(choice->name, "synthetic") != 0 && strcmp(choice->name, TOKENS) != 0) {
            (void)snprintf(why, sizeof why, "%s reads tokens: --dataset synthetic has them",
                           model_name);
            return why;
        }
        *out_name = TOKENS;
        options->sequence = (int32_t)shape.dims[0];
        options->vocabulary = (int32_t)dunlin_model_vocabulary(model);
        options->classes = (int32_t)dunlin_model_n_outputs(model);
        return NULL;
    }
    const int32_t n_features = data_n_features(choice);
    if (n_features > 0) {
        if (shape.n_dims == 3 && shape.dims[0] == n_features && shape.dims[1] == 1 &&
            shape.dims[2] == 1) {
            return NULL;
        }
        (void)snprintf(why, sizeof why,
                       "%s does not take the %d features of %s, shape (%d, 1, 1): --model har_mlp "
                       "does",
                       model_name, (int)n_features, choice->name, (int)n_features);
        return why;
    }
    if (!fit_pictures(model, options)) {
        (void)snprintf(why, sizeof why,
                       "%s does not take square images: no data set here has its shape",
                       model_name);
        return why;
    }
    return NULL;
}
