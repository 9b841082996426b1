/*
 * facts.c - what a result came from: every hyper-parameter with the value that was used, the
 * program's commit, the processor, the examples.
 */
#include "common/progress.h"
#include "object.h"
#include "train.h"

#include <math.h>
#include <psa/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HASH_PIECE (UINT64_C(1) << 20)

/* Those of the other optimisers are null: they were not used. */
static json_t *hyper_object(const train_flags *flags)
{
    const bool is_sgd = flags->optimizer_value == DUNLIN_OPTIMIZER_SGD;
    const dunlin_trainer_options options = train_options(flags);
    json_t *object = json_object();
    object_number(object, "batch", flags->batch);
    object_number(object, "epochs", flags->has_steps && !flags->has_epochs ? 0 : flags->epochs);
    object_number(object, "steps", flags->has_steps ? flags->steps : 0);
    object_number(object, "seed", (int64_t)flags->seed);
    object_text(object, "loss", flags->loss);
    object_real(object, "label_smoothing", flags->label_smoothing);
    if (flags->has_ignore_label) {
        object_number(object, "ignore_label", flags->ignore_label);
    } else {
        object_text(object, "ignore_label", NULL);
    }
    object_text(object, "optimizer", flags->optimizer);
    const bool is_integer = train_is_integer(flags);
    object_text(object, "precision", flags->precision != NULL ? flags->precision : "fp32");
    object_text(object, "storage", flags->storage);
    object_text(object, "grad_bits", is_integer ? flags->grad_bits : NULL);
    if (is_integer) {
        object_text(object, "weight_growth", flags->growth != NULL ? flags->growth : "64");
    }
    object_real(object, "lr", is_integer ? (double)NAN : flags->lr);
    object_real(object, "momentum", is_sgd && !is_integer ? flags->momentum : (double)NAN);
    object_flag(object, "nesterov", flags->is_nesterov);
    object_real(object, "beta1", is_sgd ? (double)NAN : options.beta1 > 0.0 ? options.beta1 : 0.9);
    object_real(object, "beta2",
                is_sgd                ? (double)NAN
                : options.beta2 > 0.0 ? options.beta2
                                      : 0.999);
    object_real(object, "eps", is_sgd ? (double)NAN : options.eps > 0.0 ? options.eps : 1e-8);
    object_real(object, "weight_decay", flags->weight_decay);
    object_text(object, "decay_norms", flags->decay_norms);
    object_text(object, "groups", flags->groups_given);
    object_text(object, "frozen", flags->frozen);
    object_text(object, "trained", flags->trained);
    object_real(object, "clip_value", flags->clip_value > 0.0 ? flags->clip_value : (double)NAN);
    object_real(object, "clip_norm", flags->clip_norm > 0.0 ? flags->clip_norm : (double)NAN);
    object_text(object, "schedule", is_integer ? NULL : flags->schedule);
    object_number(object, "warmup", flags->warmup_steps);
    object_real(object, "gamma", flags->gamma);
    object_number(object, "lr_period", flags->period_steps);
    object_real(object, "min_lr", flags->min_lr);
    object_flag(object, "freeze_batch_norm", flags->freeze_batch_norm);
    object_flag(object, "ghost", flags->is_ghost);
    object_flag(object, "keep_order", flags->keep_order);
    object_flag(object, "drop_last", flags->drop_last);
    object_text(object, "validation", flags->validation);
    if (flags->augment != NULL) {
        object_text(object, "augment", flags->augment);
    }
    if (flags->border != NULL) {
        object_text(object, "border", flags->border);
    }
    return object;
}

/* The processor's name by the kernel; "unknown" where it does not tell. */
static void read_processor(char *out_name, size_t size)
{
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "re");
    (void)snprintf(out_name, size, "unknown");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) == 0 && colon != NULL && colon[1] == ' ') {
            line[strcspn(line, "\n")] = '\0';
            (void)snprintf(out_name, size, "%s", colon + 2);
            break;
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
}

void train_set_facts(json_t *root, const train_flags *flags)
{
    char processor[256];
    struct timespec cpu = {0};
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    read_processor(processor, sizeof processor);
    (void)json_object_set_new(root, "hyper", hyper_object(flags));
    object_text(root, "commit", DUNLIN_COMMIT);
    object_text(root, "cpu_model", processor);
    object_real(root, "cpu_s", (double)cpu.tv_sec + (double)cpu.tv_nsec / 1e9);
}

/* Labels in pieces: as bytes; of more than 256 classes as two each, the lower one first. */
static psa_status_t hash_labels(const dunlin_dataset *dataset, psa_hash_operation_t *operation)
{
    uint8_t labels[1024];
    const int64_t n = dunlin_dataset_n_examples(dataset);
    const bool is_wide = dunlin_dataset_n_classes(dataset) > 256;
    psa_status_t status = PSA_SUCCESS;
    size_t n_here = 0;
    for (int64_t i = 0; i < n && status == PSA_SUCCESS; i++) {
        const uint32_t label = (uint32_t)dunlin_dataset_label(dataset, i);
        labels[n_here++] = (uint8_t)label;
        if (is_wide) {
            labels[n_here++] = (uint8_t)(label >> 8);
        }
        if (n_here == sizeof labels || i == n - 1) {
            status = psa_hash_update(operation, labels, n_here);
            n_here = 0;
        }
    }
    return status;
}

/* Examples that are drawn when they are read, one by one as they are delivered. */
static psa_status_t hash_made(const dunlin_dataset *dataset, psa_hash_operation_t *operation,
                              progress *line)
{
    dunlin_source source;
    int64_t n_elements = 0;
    const dunlin_shape shape = dunlin_dataset_shape(dataset);
    dunlin_dataset_source(dataset, &source);
    if (dunlin_shape_count(&shape, &n_elements) != DUNLIN_OK) {
        return PSA_ERROR_INVALID_ARGUMENT;
    }
    const size_t bytes = (size_t)n_elements * dunlin_dtype_bytes(source.dtype);
    const int64_t n_labels = dunlin_dataset_n_labels(dataset);
    unsigned char *example = malloc(bytes);
    int32_t *labels = malloc((size_t)n_labels * sizeof *labels);
    psa_status_t status =
        example == NULL || labels == NULL ? PSA_ERROR_INSUFFICIENT_MEMORY : PSA_SUCCESS;
    for (int64_t i = 0; i < source.n_examples && status == PSA_SUCCESS; i++) {
        status = source.read_fn(source.ctx, &i, 1, example, labels) == DUNLIN_OK
                     ? psa_hash_update(operation, example, bytes)
                     : PSA_ERROR_DATA_INVALID;
        if (status == PSA_SUCCESS && n_labels > 1) {
            status = psa_hash_update(operation, (const uint8_t *)labels,
                                     (size_t)n_labels * sizeof *labels);
        }
        progress_update(line, i + 1, source.n_examples, NULL);
    }
    free(labels);
    free(example);
    return status;
}

/* In pieces, of which the line tells. */
static psa_status_t hash_stored(const uint8_t *stored, uint64_t n_bytes,
                                psa_hash_operation_t *operation, progress *line)
{
    psa_status_t status = PSA_SUCCESS;
    for (uint64_t done = 0; done < n_bytes && status == PSA_SUCCESS;) {
        const uint64_t n = n_bytes - done < HASH_PIECE ? n_bytes - done : HASH_PIECE;
        status = psa_hash_update(operation, stored + done, (size_t)n);
        done += n;
        progress_update(line, (int64_t)(done >> 20), (int64_t)(n_bytes >> 20), NULL);
    }
    return status;
}

int train_hash_data(const dunlin_dataset *dataset, char out_digits[65])
{
    uint8_t hash[32];
    size_t n_hash = 0;
    uint64_t n_bytes = 0;
    const void *stored = dunlin_dataset_stored(dataset, &n_bytes);
    psa_hash_operation_t operation = psa_hash_operation_init();
    psa_status_t status = psa_crypto_init();
    if (status == PSA_SUCCESS) {
        status = psa_hash_setup(&operation, PSA_ALG_SHA_256);
    }
    progress line;
    progress_begin(&line, "hashing the examples", stored == NULL ? "examples" : "MiB");
    if (status == PSA_SUCCESS) {
        status = stored == NULL ? hash_made(dataset, &operation, &line)
                                : hash_stored(stored, n_bytes, &operation, &line);
    }
    if (status == PSA_SUCCESS) {
        status = hash_labels(dataset, &operation);
    }
    if (status == PSA_SUCCESS) {
        status = psa_hash_finish(&operation, hash, sizeof hash, &n_hash);
    }
    progress_end(&line);
    if (status != PSA_SUCCESS || n_hash != sizeof hash) {
        (void)psa_hash_abort(&operation);
        return program_refuse(&train_program, DUNLIN_INTERNAL,
                              "hashing the examples of %s fails with status %d",
                              dunlin_dataset_title(dataset), (int)status);
    }
    for (size_t i = 0; i < sizeof hash; i++) {
        (void)snprintf(out_digits + 2 * i, 3, "%02x", hash[i]);
    }
    return EXIT_OK;
}
