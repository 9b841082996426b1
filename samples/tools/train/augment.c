/*
 * augment.c - --augment: what is changed at random in the examples that are trained on.
 */
#include "train.h"

#include <string.h>

static int check_border(const train_flags *flags)
{
    const char *border = flags->border;
    if (border == NULL) {
        return EXIT_OK;
    }
    if (strcmp(border, "zero") != 0 && strcmp(border, "mean") != 0) {
        return program_misuse(&train_program, "--border %s: zero or mean", border);
    }
    return flags->has_random_crop
               ? EXIT_OK
               : program_misuse(&train_program, "--border without --random-crop or --augment crop");
}

int train_check_augment(train_flags *flags)
{
    if (flags->augment == NULL) {
        return check_border(flags);
    }
    if (flags->has_random_crop || flags->is_flip) {
        return program_misuse(&train_program,
                              "--augment and --random-crop or --flip say the same thing twice: "
                              "--augment takes crop=PAD and flip, too");
    }
    const int status = augment_parse(&train_program, flags->augment, &flags->changes);
    flags->has_random_crop = flags->changes.has_crop;
    flags->padding = flags->changes.padding;
    flags->is_flip = flags->changes.is_flip;
    if (status == EXIT_OK && flags->changes.mixup > 0.0 && flags->has_ignore_label) {
        return program_misuse(&train_program,
                              "--augment mixup mixes every label: --ignore-label does not go with "
                              "it");
    }
    return status == EXIT_OK ? check_border(flags) : status;
}

dunlin_loss train_loss(const train_flags *flags)
{
    return flags->changes.mixup > 0.0 && flags->loss_value == DUNLIN_LOSS_CROSS_ENTROPY
               ? DUNLIN_LOSS_SOFT_CROSS_ENTROPY
               : flags->loss_value;
}

void train_fill_augment(const train_flags *flags, int64_t n_classes, int64_t epoch_steps,
                        dunlin_pipeline_options *options)
{
    options->cutout = (int32_t)flags->changes.cutout;
    options->shift = (int32_t)flags->changes.shift;
    options->mixup = (float)flags->changes.mixup;
    options->noise = (float)flags->changes.noise;
    options->n_classes = (int32_t)n_classes;
    options->epoch_steps = flags->augment != NULL ? epoch_steps : 0;
}
