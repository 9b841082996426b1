/*
 * precision.c - --precision, --grad-bits and --storage: the numbers that devices train in, and in
 * which they store what a step keeps, as keys of the task file and its plan.
 */
#include "fleet.h"

#include <stdlib.h>
#include <string.h>

#define PAPERS_BITS "5,4,3" /* one after the other over the run */
#define STAGES_MOST 16
#define BITS_MOST 7

/* The precisions without a rate; the others have all flags of float32. */
bool fleet_is_integer(const fleet_flags *flags)
{
    return flags->precision != NULL &&
           (strcmp(flags->precision, "niti") == 0 || strcmp(flags->precision, "niti16") == 0);
}

/* A flag of a rate, or of what needs one, that integers do not have; NULL: none was given. */
static const char *given_in_vain(const fleet_flags *flags)
{
    const struct {
        const char *name;
        bool is_given;
    } rows[] = {
        {"--lr", flags->has_lr},
        {"--lr-decay", flags->lr_decay < 1.0},
        {"--momentum", flags->has_momentum},
        {"--algorithm", strcmp(flags->algorithm, "fedavg") != 0},
        {"--optimizer", flags->optimizer != NULL && strcmp(flags->optimizer, "sgd") != 0},
        {"--schedule", flags->schedule != NULL},
        {"--warmup", flags->warmup_steps > 0},
        {"--weight-decay", flags->weight_decay > 0.0},
        {"--clip-norm", flags->clip_norm > 0.0},
        {"--clip-value", flags->clip_value > 0.0},
        {"--decay-norms", flags->decay_norms != NULL},
        {"--groups", flags->groups_given != NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (rows[i].is_given) {
            return rows[i].name;
        }
    }
    return NULL;
}

/* "5,4,3" as a list (a new reference), or NULL. */
static json_t *bits_list(const char *text)
{
    json_t *list = json_array();
    for (const char *at = text; at != NULL;) {
        char *end = NULL;
        const bool is_digit = at[0] >= '0' && at[0] <= '9';
        const long bits = is_digit ? strtol(at, &end, 10) : 0;
        if (bits < 1 || bits > BITS_MOST || (*end != ',' && *end != '\0') ||
            json_array_size(list) == STAGES_MOST) {
            json_decref(list);
            return NULL;
        }
        (void)json_array_append_new(list, json_integer((json_int_t)bits));
        at = *end == ',' ? end + 1 : NULL;
    }
    return list;
}

static int take_storage(fleet_flags *flags)
{
    static const dunlin_storage all[] = {DUNLIN_STORAGE_EXACT, DUNLIN_STORAGE_BF16,
                                         DUNLIN_STORAGE_INT8};
    for (size_t i = 0; flags->storage != NULL && i < sizeof all / sizeof all[0]; i++) {
        if (strcmp(dunlin_storage_name(all[i]), flags->storage) == 0) {
            flags->storage_value = all[i];
            return all[i] == DUNLIN_STORAGE_EXACT || flags->precision == NULL
                       ? EXIT_OK
                       : program_misuse(&fleet_program, "--storage does not go with --precision");
        }
    }
    return flags->storage == NULL
               ? EXIT_OK
               : program_misuse(&fleet_program, "--storage %s: exact, bf16 or int8",
                                flags->storage);
}

int fleet_check_precision(fleet_flags *flags)
{
    const int status = take_storage(flags);
    if (status != EXIT_OK) {
        return status;
    }
    if (!fleet_is_integer(flags)) {
        return flags->grad_bits == NULL
                   ? EXIT_OK
                   : program_misuse(&fleet_program, "--grad-bits goes with --precision niti");
    }
    const char *vain = given_in_vain(flags);
    if (vain != NULL) {
        return program_misuse(&fleet_program,
                              "%s has no meaning with --precision %s: --grad-bits is the rate",
                              vain, flags->precision);
    }
    flags->momentum = 0.0;
    flags->grad_bits = flags->grad_bits != NULL ? flags->grad_bits : PAPERS_BITS;
    json_t *list = bits_list(flags->grad_bits);
    if (list == NULL) {
        return program_misuse(&fleet_program,
                              "--grad-bits %s: expected up to %d whole numbers from 1 to %d, with "
                              "commas",
                              flags->grad_bits, STAGES_MOST, BITS_MOST);
    }
    json_decref(list);
    return EXIT_OK;
}

void fleet_precision_json(const fleet_flags *flags, json_t *task, json_t *plan)
{
    if (flags->storage != NULL) {
        (void)json_object_set_new(plan, "storage", json_string(flags->storage));
    }
    if (!fleet_is_integer(flags)) {
        if (flags->precision != NULL) {
            (void)json_object_set_new(plan, "precision", json_string(flags->precision));
        }
        return;
    }
    (void)json_object_del(plan, "lr");
    (void)json_object_del(plan, "lr_decay");
    (void)json_object_set_new(plan, "precision", json_string(flags->precision));
    (void)json_object_set_new(plan, "grad_bits", bits_list(flags->grad_bits));
    /* What is packed or bounded is a difference. */
    if (flags->compress != NULL || flags->update_clip > 0.0) {
        (void)json_object_set_new(task, "update_form", json_string("delta"));
    }
}
