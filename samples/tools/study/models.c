/*
 * models.c - networks by name: files beside those of the zoo, and the data set that each is trained
 * on.
 */
#include "study.h"

#include <dunlin/tools.h>

#include <inttypes.h>
#include <string.h>

#define SHARE 0.1 /* held out where --validation does not say */

bool study_is_file(const char *model)
{
    const size_t n = strlen(model);
    return n > 5 && strcmp(model + n - 5, ".onnx") == 0;
}

const char *study_model_name(const char *model)
{
    const char *slash = strrchr(model, '/');
    return study_is_file(model) && slash != NULL ? slash + 1 : model;
}

dunlin_status study_open_file(const study_flags *flags, const char *path,
                              const dunlin_zoo_options *sizes, dunlin_model **out_model,
                              dunlin_error *error)
{
    dunlin_model_sizes open = DUNLIN_MODEL_SIZES_INIT;
    open.height = sizes->image;
    open.width = sizes->image;
    dunlin_status status = dunlin_model_open_sized(path, &open, NULL, out_model, error);
    dunlin_zoo_options wanted = *sizes;
    if (flags->dataset != NULL) {
        data_fill_zoo(&flags->choice, path, &wanted);
    }
    if (status == DUNLIN_OK && wanted.classes > 0 &&
        wanted.classes != dunlin_model_n_outputs(*out_model)) {
        dunlin_model *headed = NULL;
        status = dunlin_model_replace_head(*out_model, wanted.classes, NULL, &headed, error);
        dunlin_model_destroy(*out_model);
        *out_model = headed;
    }
    return status;
}

bool study_has_batch_norm(const study_subject *subject)
{
    bool has_any = false;
    for (int32_t i = 0; i < dunlin_model_n_parameters(subject->model); i++) {
        has_any = has_any || dunlin_model_is_variance(subject->model, i);
    }
    return has_any;
}

const char *study_default_dataset(const study_flags *flags, const char *model)
{
    if (flags->dataset != NULL) {
        return flags->choice.name;
    }
    /* What takes other examples than pictures with a class each: with a folder, and without. */
    static const struct {
        const char *begin, *stored, *made;
    } special[] = {{"bert_small", "synthetic", "synthetic"},
                   {"bert_tiny", "synthetic", "synthetic"},
                   {"gpt_", "shakespeare", "made_text"},
                   {"unet", "shapes", "shapes"},
                   {"siamese", "pairs", "pairs"},
                   {"har_mlp", "wisdm", NULL},
                   {"har_fcn", NULL, NULL},
                   {"lenet5", "fashion_mnist", "synthetic"}};
    for (size_t i = 0; i < sizeof special / sizeof special[0]; i++) {
        if (strncmp(model, special[i].begin, strlen(special[i].begin)) == 0) {
            return flags->folder == NULL ? special[i].made : special[i].stored;
        }
    }
    return flags->folder == NULL ? "synthetic" : "cifar10";
}

void study_tell_no_data(study *at, const char *model)
{
    const study_flags *flags = study_flags_of(at);
    study_tell_filter(at, "--data %s: nothing that %s takes: --dataset names its examples",
                      flags->folder == NULL ? "synthetic" : flags->folder, model);
}

/* Whether it says whose its examples are. */
static bool has_clients(const study_flags *flags, const char *dataset)
{
    static const char *const known[] = {"synthetic", "mnist_writers",     "wisdm",
                                        "spsw_har",  "shakespeare_roles", "made_roles"};
    bool is_known = flags->dataset != NULL && flags->own.n_natural_clients > 1;
    for (size_t i = 0; flags->dataset == NULL && i < sizeof known / sizeof known[0]; i++) {
        is_known = is_known || strcmp(known[i], dataset) == 0;
    }
    return is_known;
}

dunlin_validation study_validation(const study_flags *flags, const char *dataset)
{
    dunlin_validation held_out = DUNLIN_VALIDATION_INIT;
    held_out.seed = flags->seed;
    held_out.share = SHARE;
    if (flags->validation != NULL) {
        (void)dunlin_tools_parse_validation(flags->validation, &held_out, NULL);
    }
    held_out.by_client = held_out.by_client || has_clients(flags, dataset);
    return held_out;
}

void study_validation_text(const dunlin_validation *held_out, char out[STUDY_VALIDATION_BYTES])
{
    char amount[32];
    if (held_out->n_examples > 0) {
        (void)snprintf(amount, sizeof amount, "%" PRId64, held_out->n_examples);
    } else {
        (void)snprintf(amount, sizeof amount, "%.9g%%", 100.0 * held_out->share);
    }
    (void)snprintf(out, STUDY_VALIDATION_BYTES, "%s%s:seed=%" PRIu64, amount,
                   held_out->by_client ? ":writers" : "", held_out->seed);
}

dunlin_dataset *study_open_split(study *at, const study_subject *subject, const char *dataset,
                                 dunlin_split split, int64_t max_examples,
                                 const dunlin_validation *held_out)
{
    const study_flags *flags = study_flags_of(at);
    const data_choice choice = flags->dataset != NULL
                                   ? flags->choice
                                   : (data_choice){.name = dataset == NULL ? "synthetic" : dataset,
                                                   .folder = flags->folder};
    dunlin_dataset_options options = DUNLIN_DATASET_OPTIONS_INIT;
    dunlin_dataset *opened = NULL;
    dunlin_error error = {0};
    const char *name = NULL;
    const char *wrong = data_fit(&choice, subject->model, subject->name, &name, &options);
    if (wrong != NULL) {
        study_fail(at, "%s", wrong);
        return NULL;
    }
    options.seed = flags->seed;
    options.max_examples = max_examples;
    options.validation = held_out;
    if (dunlin_tools_dataset_open(name, choice.folder, split, &options, NULL, &opened, &error) !=
        DUNLIN_OK) {
        study_fail_with(at, choice.name, &error);
    } else if (dunlin_dataset_n_classes(opened) > dunlin_model_n_outputs(subject->model)) {
        study_fail(at, "%s has %" PRId32 " classes, %s %" PRId64 " outputs",
                   dunlin_dataset_title(opened), dunlin_dataset_n_classes(opened), subject->name,
                   dunlin_model_n_outputs(subject->model));
        dunlin_dataset_close(opened);
        opened = NULL;
    }
    return opened;
}

dunlin_dataset *study_open_data(study *at, const study_subject *subject, const char *dataset,
                                dunlin_split split, int64_t max_examples)
{
    return study_open_split(at, subject, dataset, split, max_examples, NULL);
}
