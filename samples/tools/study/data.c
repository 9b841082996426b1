/*
 * data.c - --dataset and --image: which data set a study works on, and what fits it.
 */
#include "named.h"

#include <dunlin/tools.h>

#include <stdio.h>
#include <string.h>

/* A vector of features: one pixel, or no image at all. */
static bool is_vector(const dunlin_shape *shape)
{
    return shape->n_dims < 2 || (shape->n_dims == 3 && shape->dims[1] * shape->dims[2] == 1);
}

/* Opens it once, as it is stored or in the size of --image. */
static int look_into(study_flags *flags)
{
    dunlin_dataset_options options = DUNLIN_DATASET_OPTIONS_INIT;
    dunlin_dataset *set = NULL;
    dunlin_error error = {0};
    study_data *own = &flags->own;
    options.seed = flags->seed;
    options.image = data_is_folder(&flags->choice) ? (int32_t)flags->image : 0;
    if (dunlin_tools_dataset_open(flags->choice.name, flags->choice.folder, DUNLIN_SPLIT_TRAIN,
                                  &options, NULL, &set, &error) != DUNLIN_OK) {
        return program_refuse(&study_program, error.status, "%s",
                              error.text[0] != '\0' ? error.text
                                                    : dunlin_status_text(error.status));
    }
    (void)snprintf(own->title, sizeof own->title, "%s", dunlin_dataset_title(set));
    own->is_synthetic = dunlin_dataset_is_synthetic(set);
    own->has_shape =
        strcmp(flags->choice.name, "random") != 0 && strcmp(flags->choice.name, "synthetic") != 0;
    own->shape = dunlin_dataset_shape(set);
    own->n_classes = dunlin_dataset_n_classes(set);
    own->n_examples = dunlin_dataset_n_examples(set);
    own->n_natural_clients = dunlin_dataset_n_natural_clients(set);
    if (dunlin_dataset_note(set)[0] != '\0') {
        (void)printf("%s: %s\n", own->title, dunlin_dataset_note(set));
    }
    dunlin_dataset_close(set);
    return EXIT_OK;
}

int study_check_data(study_flags *flags)
{
    const char *wrong = data_choose(flags->data, flags->dataset, &flags->choice);
    if (wrong == NULL && flags->dataset != NULL) {
        wrong = data_check_name(&flags->choice);
    }
    if (wrong != NULL) {
        return program_misuse(&study_program, "%s", wrong);
    }
    flags->folder = flags->choice.folder;
    if (flags->classes != 0 &&
        (strcmp(flags->study, "all") == 0 || strcmp(flags->study, "heterogeneity") == 0 ||
         strcmp(flags->study, "precision") == 0 || named_has(flags->study, &study_federated) ||
         strcmp(flags->study, "federated") == 0)) {
        return program_misuse(&study_program,
                              "--classes: a fleet's network has as many outputs as its data have "
                              "classes, in %s too",
                              flags->study);
    }
    return flags->dataset == NULL ? EXIT_OK : look_into(flags);
}

bool study_data_fits(const study_flags *flags, const char *model)
{
    const bool takes_features = strcmp(model, "har_mlp") == 0;
    const bool takes_tokens = strcmp(model, "bert_small") == 0;
    if (flags->dataset == NULL || !flags->own.has_shape) {
        return true;
    }
    return is_vector(&flags->own.shape) ? takes_features : !takes_features && !takes_tokens;
}

const char *study_data_model(const study_flags *flags)
{
    return is_vector(&flags->own.shape) ? "har_mlp" : "lenet5";
}

int32_t study_data_image(const study_flags *flags)
{
    const dunlin_shape *shape = &flags->own.shape;
    const bool is_square = shape->n_dims == 3 && shape->dims[1] == shape->dims[2];
    return flags->dataset != NULL && flags->own.has_shape && is_square && shape->dims[1] > 1
               ? (int32_t)shape->dims[1]
               : 0;
}
