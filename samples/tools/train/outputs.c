/*
 * outputs.c - --outputs: which of a file's outputs are trained, with which weights; what each of
 * them scored.
 */
#include "train.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "NAME" or "NAME=W": the weight in the sum of the losses. */
static int take_output(train_flags *flags, char *piece)
{
    train_outputs *outputs = &flags->outputs;
    char *value = strrchr(piece, '=');
    float weight = 1.0F;
    if (value != NULL) {
        char *end = NULL;
        *value++ = '\0';
        weight = strtof(value, &end);
        if (end == value || *end != '\0' || !isfinite(weight) || weight < 0.0F) {
            return program_misuse(&train_program,
                                  "--outputs %s=%s: expected a weight, finite and not negative",
                                  piece, value);
        }
    }
    if (piece[0] == '\0' || outputs->n == DUNLIN_MODEL_MAX_OUTPUTS) {
        return program_misuse(&train_program,
                              "--outputs: a name is empty, or there are more than %d",
                              DUNLIN_MODEL_MAX_OUTPUTS);
    }
    dunlin_output_loss *loss = &outputs->losses[outputs->n++];
    *loss = (dunlin_output_loss)DUNLIN_OUTPUT_LOSS_INIT;
    loss->name = piece;
    loss->loss = train_loss(flags);
    loss->label_smoothing = (float)flags->label_smoothing;
    loss->weight = weight;
    return EXIT_OK;
}

/* Outputs of a ready-made network that are not named are not trained. */
static int add_unnamed(train_flags *flags)
{
    train_outputs *outputs = &flags->outputs;
    const char *own = dunlin_zoo_outputs(flags->model);
    for (const char *at = own; at != NULL && *at != '\0';) {
        const size_t length = strcspn(at, "=,");
        bool is_named = false;
        for (int32_t i = 0; i < outputs->n; i++) {
            is_named = is_named || (strlen(outputs->losses[i].name) == length &&
                                    memcmp(outputs->losses[i].name, at, length) == 0);
        }
        if (!is_named) {
            char *piece = outputs->own + (at - own);
            (void)snprintf(piece, sizeof outputs->own - (size_t)(at - own), "%.*s", (int)length,
                           at);
            const int status = take_output(flags, piece);
            if (status != EXIT_OK) {
                return status;
            }
            outputs->losses[outputs->n - 1].weight = 0.0F;
        }
        at += strcspn(at, ",");
        at += *at == ',' ? 1 : 0;
    }
    return EXIT_OK;
}

int train_check_several(train_flags *flags)
{
    train_outputs *outputs = &flags->outputs;
    if (flags->outputs_given == NULL) {
        flags->outputs_given = dunlin_zoo_outputs(flags->model);
    }
    if (flags->outputs_given == NULL) {
        return EXIT_OK;
    }
    if (strlen(flags->outputs_given) >= sizeof outputs->pieces) {
        return program_misuse(&train_program, "--outputs has %zu characters; the limit is %zu",
                              strlen(flags->outputs_given), sizeof outputs->pieces - 1);
    }
    (void)snprintf(outputs->pieces, sizeof outputs->pieces, "%s", flags->outputs_given);
    int status = EXIT_OK;
    size_t used = 0;
    for (char *piece = outputs->pieces; piece != NULL && status == EXIT_OK;) {
        char *comma = strchr(piece, ',');
        if (comma != NULL) {
            *comma = '\0';
        }
        status = take_output(flags, piece);
        used += (size_t)snprintf(outputs->names + used, sizeof outputs->names - used, "%s%s",
                                 used > 0 ? "," : "", piece);
        piece = comma == NULL ? NULL : comma + 1;
    }
    return status == EXIT_OK ? add_unnamed(flags) : status;
}

void train_choose_outputs(const train_flags *flags, dunlin_trainer_options *options)
{
    options->outputs = flags->outputs.n > 0 ? flags->outputs.losses : NULL;
    options->n_outputs = flags->outputs.n;
}

void train_take_scores(const dunlin_trainer *trainer, train_result *result)
{
    for (int32_t i = 0; i < result->n_scores; i++) {
        if (dunlin_trainer_get_output_metrics(trainer, i, &result->scores[i]) != DUNLIN_OK) {
            result->n_scores = 0;
        }
    }
}

void train_print_scores(const train_flags *flags, const train_result *result)
{
    for (int32_t i = 0; i < result->n_scores; i++) {
        const dunlin_metrics *of = &result->scores[i];
        printf("  output %s: ", result->score_names[i]);
        if (flags->loss_value != DUNLIN_LOSS_MSE) {
            printf("accuracy %.2f %%, ", 100.0 * of->accuracy);
        }
        printf("loss %.4f\n", of->loss);
    }
}

void train_name_scores(const dunlin_model *model, train_result *result)
{
    const int32_t n = dunlin_model_count_outputs(model);
    result->n_scores = n > 1 ? n : 0;
    for (int32_t i = 0; i < result->n_scores; i++) {
        dunlin_model_output output = DUNLIN_MODEL_OUTPUT_INIT;
        if (dunlin_model_get_output(model, i, &output) == DUNLIN_OK) {
            (void)snprintf(result->score_names[i], sizeof result->score_names[i], "%s",
                           output.name);
        }
    }
}
