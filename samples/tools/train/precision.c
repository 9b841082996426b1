/*
 * precision.c - --precision, --grad-bits, --weight-growth and --storage: what goes with them, and
 * the bits of a run's steps.
 */
#include "train.h"

#include <stdlib.h>
#include <string.h>

#define GROWTH_MOST 65536 /* as dunlin_trainer_set_weight_growth() has it */

/* NITI ends at 3 after 150 epochs of batches of 256; shorter runs of smaller batches, whose updates
 * are noisier, have to end lower (trainer/INTEGERS.md, "The rate"). */
#define USUAL_BITS "5,4,3,2,1,0"

/* The precisions without a rate; the others have all flags of float32. */
bool train_is_integer(const train_flags *flags)
{
    return flags->precision != NULL &&
           (strcmp(flags->precision, "niti") == 0 || strcmp(flags->precision, "niti16") == 0);
}

/* A flag of a rate that integers do not have; NULL: none was given. */
static const char *given_in_vain(const train_flags *flags)
{
    const struct {
        const char *name;
        bool is_given;
    } rows[] = {
        {"--lr", flags->has_lr},
        {"--schedule", flags->schedule != NULL || flags->lr_decay != NULL},
        {"--warmup", flags->warmup_steps > 0},
        {"--momentum", flags->has_momentum || flags->is_nesterov},
        {"--optimizer", strcmp(flags->optimizer, "sgd") != 0},
        {"--weight-decay", flags->weight_decay > 0.0},
        {"--clip-value", flags->clip_value > 0.0},
        {"--clip-norm", flags->clip_norm > 0.0},
        {"--label-smoothing", flags->label_smoothing > 0.0},
        {"--groups", flags->groups_given != NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].is_given) {
            return rows[i].name;
        }
    }
    return NULL;
}

static int take_storage(train_flags *flags)
{
    static const dunlin_storage all[] = {DUNLIN_STORAGE_EXACT, DUNLIN_STORAGE_BF16,
                                         DUNLIN_STORAGE_INT8};
    flags->storage = flags->storage != NULL ? flags->storage : dunlin_storage_name(all[0]);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (strcmp(dunlin_storage_name(all[i]), flags->storage) == 0) {
            flags->storage_value = all[i];
            return EXIT_OK;
        }
    }
    return program_misuse(&train_program, "--storage %s: exact, bf16 or int8", flags->storage);
}

/* 0 where it is not given, and where it is no number that weights grow by. */
int32_t train_growth(const train_flags *flags)
{
    if (flags->growth == NULL) {
        return 0;
    }
    if (strcmp(flags->growth, "off") == 0) {
        return DUNLIN_WEIGHT_GROWTH_NONE;
    }
    char *end = NULL;
    const bool is_digit = flags->growth[0] >= '0' && flags->growth[0] <= '9';
    const long number = is_digit ? strtol(flags->growth, &end, 10) : 0;
    return is_digit && *end == '\0' && number >= 2 && number <= GROWTH_MOST ? (int32_t)number : 0;
}

static int check_growth(const train_flags *flags)
{
    if (flags->growth != NULL && !train_is_integer(flags)) {
        return program_misuse(&train_program, "--weight-growth goes with --precision niti");
    }
    if (flags->growth != NULL && train_growth(flags) == 0) {
        return program_misuse(&train_program,
                              "--weight-growth %s: expected off or a whole number from 2 to %d",
                              flags->growth, GROWTH_MOST);
    }
    return EXIT_OK;
}

int train_check_precision(train_flags *flags)
{
    int status = take_storage(flags);
    status = status == EXIT_OK ? check_growth(flags) : status;
    if (status != EXIT_OK) {
        return status;
    }
    if (flags->is_qdq && (flags->save == NULL || !train_is_integer(flags))) {
        return program_misuse(&train_program, "--qdq goes with --save and --precision niti");
    }
    if (!train_is_integer(flags)) {
        return flags->grad_bits == NULL
                   ? EXIT_OK
                   : program_misuse(&train_program, "--grad-bits goes with --precision niti");
    }
    const char *vain = given_in_vain(flags);
    if (vain != NULL) {
        return program_misuse(&train_program,
                              "%s has no meaning with --precision %s: --grad-bits is the rate",
                              vain, flags->precision);
    }
    flags->momentum = 0.0;
    flags->grad_bits = flags->grad_bits != NULL ? flags->grad_bits : USUAL_BITS;
    return EXIT_OK;
}

dunlin_status train_set_bits(const train_flags *flags, dunlin_trainer *trainer, int64_t n_steps)
{
    int64_t n_stages = 1;
    for (const char *at = flags->grad_bits; *at != '\0'; at++) {
        n_stages += *at == ',' ? 1 : 0;
    }
    const int64_t n = n_steps / n_stages + (n_steps % n_stages != 0 ? 1 : 0);
    return dunlin_trainer_set_grad_bits(trainer, flags->grad_bits, n > 0 ? n : 1);
}
