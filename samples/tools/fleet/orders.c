/*
 * orders.c - what the plan of a run orders beside the plain training: the flags that dunlin-train
 * has too, and the remainder, as keys of the server's task file.
 */
#include "fleet.h"

#include <string.h>

/* With a server that runs already, the plan is that server's. */
static const char *first_given(const fleet_flags *flags)
{
    const struct {
        bool is_given;
        const char *flag;
    } all[] = {
        {flags->remainder != NULL, "--remainder"},
        {flags->precision != NULL, "--precision"},
        {flags->storage != NULL, "--storage"},
        {flags->grad_bits != NULL, "--grad-bits"},
        {flags->optimizer != NULL, "--optimizer"},
        {flags->schedule != NULL, "--schedule"},
        {flags->warmup_steps > 0, "--warmup"},
        {flags->has_gamma, "--gamma"},
        {flags->period_steps > 0, "--lr-period"},
        {flags->min_lr > 0.0, "--min-lr"},
        {flags->weight_decay > 0.0, "--weight-decay"},
        {flags->clip_norm > 0.0, "--clip-norm"},
        {flags->clip_value > 0.0, "--clip-value"},
        {flags->frozen != NULL, "--frozen"},
        {flags->trained != NULL, "--trained"},
        {flags->decay_norms != NULL, "--decay-norms"},
        {flags->groups_given != NULL, "--groups"},
        {flags->is_flip, "--flip"},
        {flags->has_random_crop, "--random-crop"},
        {flags->augment != NULL, "--augment"},
        {flags->has_ignore_label, "--ignore-label"},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        if (all[i].is_given) {
            return all[i].flag;
        }
    }
    return NULL;
}

/* One of a list that ends with NULL, or nothing. */
static int check_name(const char *flag, const char *text, const char *const *names,
                      const char *expected)
{
    for (size_t i = 0; text != NULL && names[i] != NULL; i++) {
        if (strcmp(text, names[i]) == 0) {
            return EXIT_OK;
        }
    }
    return text == NULL
               ? EXIT_OK
               : program_misuse(&fleet_program, "%s %s: expected %s", flag, text, expected);
}

static int check_schedule(const fleet_flags *flags)
{
    static const char *const names[] = {"constant", "step",   "exponential",
                                        "cosine",   "linear", NULL};
    const int status = check_name("--schedule", flags->schedule, names,
                                  "constant, step, exponential, cosine or linear");
    if (status != EXIT_OK) {
        return status;
    }
    const char *name = flags->schedule != NULL ? flags->schedule : "constant";
    const bool has_gamma = strcmp(name, "step") == 0 || strcmp(name, "exponential") == 0;
    const bool has_least = strcmp(name, "cosine") == 0 || strcmp(name, "linear") == 0;
    if (!has_gamma && (flags->has_gamma || flags->period_steps > 0)) {
        return program_misuse(&fleet_program,
                              "--gamma and --lr-period go with --schedule step or exponential");
    }
    if (!has_least && flags->min_lr > 0.0) {
        return program_misuse(&fleet_program, "--min-lr goes with --schedule cosine or linear");
    }
    return EXIT_OK;
}

static bool is_adaptive(const fleet_flags *flags)
{
    return flags->optimizer != NULL && strcmp(flags->optimizer, "sgd") != 0;
}

static int check_optimizer(fleet_flags *flags)
{
    static const char *const names[] = {"sgd", "adam", "adamw", NULL};
    const int status = check_name("--optimizer", flags->optimizer, names, "sgd, adam or adamw");
    if (status == EXIT_OK && is_adaptive(flags)) {
        if (flags->has_momentum && flags->momentum > 0.0) {
            return program_misuse(&fleet_program, "--momentum goes with --optimizer sgd");
        }
        flags->momentum = 0.0;
    }
    return status;
}

/* SCAFFOLD's variates follow from plain steps at one rate. */
static int check_scaffold(const fleet_flags *flags)
{
    const bool is_plain =
        !is_adaptive(flags) && flags->schedule == NULL && flags->warmup_steps == 0 &&
        flags->clip_norm <= 0.0 && flags->clip_value <= 0.0 && flags->frozen == NULL &&
        flags->trained == NULL && flags->decay_norms == NULL && flags->groups_given == NULL;
    return strcmp(flags->algorithm, "scaffold") != 0 || is_plain
               ? EXIT_OK
               : program_misuse(&fleet_program,
                                "--algorithm scaffold takes plain steps at one rate: no Adam, "
                                "schedule, clipping, groups or frozen parameters");
}

static int check_images(const fleet_flags *flags)
{
    if (flags->image > 0 && (data_n_features(&flags->choice) > 0 || data_is_text(&flags->choice) ||
                             data_is_speeches(&flags->choice))) {
        return program_misuse(&fleet_program, "--image %lld: --dataset %s has no images",
                              (long long)flags->image, flags->choice.name);
    }
    return (flags->is_flip || flags->has_random_crop) && data_n_features(&flags->choice) > 0
               ? program_misuse(&fleet_program,
                                "--flip, --random-crop and crop and flip of --augment are for "
                                "images: --dataset %s has none",
                                flags->choice.name)
               : EXIT_OK;
}

static int check_augment(fleet_flags *flags)
{
    if (flags->augment != NULL && (flags->is_flip || flags->has_random_crop)) {
        return program_misuse(&fleet_program,
                              "--augment and --random-crop or --flip say the same thing twice: "
                              "--augment takes crop=PAD and flip, too");
    }
    if (flags->augment == NULL) {
        return EXIT_OK;
    }
    const int status = augment_parse(&fleet_program, flags->augment, &flags->changes);
    flags->has_random_crop = flags->changes.has_crop;
    flags->padding = flags->changes.padding;
    flags->is_flip = flags->changes.is_flip;
    if (status == EXIT_OK && flags->changes.mixup > 0.0 && flags->has_ignore_label) {
        return program_misuse(&fleet_program,
                              "--augment mixup mixes every label: --ignore-label does not go with "
                              "it");
    }
    return status;
}

int fleet_check_orders(fleet_flags *flags)
{
    static const char *const remainders[] = {"join", "drop", "keep", NULL};
    static const char *const yes_no[] = {"yes", "no", NULL};
    const char *given = first_given(flags);
    if (flags->server_url != NULL && given != NULL) {
        return program_misuse(&fleet_program,
                              "%s is for the server that --serve starts: the plan of one that runs "
                              "already stands in its task file",
                              given);
    }
    int status = check_name("--remainder", flags->remainder, remainders, "join, drop or keep");
    status = status != EXIT_OK
                 ? status
                 : check_name("--decay-norms", flags->decay_norms, yes_no, "yes or no");
    status = status != EXIT_OK ? status : check_optimizer(flags);
    status = status != EXIT_OK ? status : check_schedule(flags);
    status = status != EXIT_OK ? status : check_scaffold(flags);
    status = status != EXIT_OK ? status : check_augment(flags);
    status = status != EXIT_OK ? status : fleet_check_precision(flags);
    status = status != EXIT_OK ? status : check_images(flags);
    if (status == EXIT_OK) {
        status = groups_parse(&fleet_program, flags->groups_given, &flags->groups);
    }
    if (status == EXIT_OK && flags->groups.n > FLEET_GROUPS_MOST) {
        status = program_misuse(&fleet_program, "--groups: a round's plan has %d at most",
                                FLEET_GROUPS_MOST);
    }
    return status;
}

static json_t *group_json(const dunlin_parameter_group *group)
{
    json_t *roles = json_array();
    for (int i = DUNLIN_USE_UNUSED + 1; i < DUNLIN_N_USES; i++) {
        if ((group->uses & DUNLIN_USE_BIT(i)) != 0) {
            const char *name = dunlin_parameter_use_name((dunlin_parameter_use)i);
            (void)json_array_append_new(roles, json_string(name));
        }
    }
    json_t *object =
        json_pack("{s:o, s:f, s:f}", "roles", roles, "lr_factor", (double)group->lr_factor,
                  "decay_factor", (double)group->decay_factor);
    if (group->name != NULL) {
        (void)json_object_set_new(object, "name", json_string(group->name));
    }
    if (group->patterns != NULL) {
        (void)json_object_set_new(object, "patterns", json_string(group->patterns));
    }
    return object;
}

static void set_text(json_t *plan, const char *key, const char *text)
{
    if (text != NULL) {
        (void)json_object_set_new(plan, key, json_string(text));
    }
}

static void set_real(json_t *plan, const char *key, double value)
{
    if (value > 0.0) {
        (void)json_object_set_new(plan, key, json_real(value));
    }
}

static void set_whole(json_t *plan, const char *key, bool is_given, int64_t value)
{
    if (is_given) {
        (void)json_object_set_new(plan, key, json_integer((json_int_t)value));
    }
}

json_t *fleet_orders_json(const fleet_flags *flags)
{
    json_t *plan = json_object();
    set_text(plan, "remainder", flags->remainder);
    set_text(plan, "optimizer", flags->optimizer);
    set_text(plan, "schedule", flags->schedule);
    set_text(plan, "frozen", flags->frozen);
    set_text(plan, "trained", flags->trained);
    set_real(plan, "weight_decay", flags->weight_decay);
    set_real(plan, "gradient_clip_norm", flags->clip_norm);
    set_real(plan, "gradient_clip_value", flags->clip_value);
    set_real(plan, "gamma", flags->has_gamma ? flags->gamma : 0.0);
    set_real(plan, "min_lr", flags->min_lr);
    set_whole(plan, "warmup", flags->warmup_steps > 0, flags->warmup_steps);
    set_whole(plan, "lr_period", flags->period_steps > 0, flags->period_steps);
    set_whole(plan, "random_crop", flags->has_random_crop, flags->padding);
    set_whole(plan, "cutout", flags->changes.cutout > 0, flags->changes.cutout);
    set_whole(plan, "shift", flags->changes.shift > 0, flags->changes.shift);
    set_real(plan, "mixup", flags->changes.mixup);
    set_real(plan, "noise", flags->changes.noise);
    set_whole(plan, "ignore_label", flags->has_ignore_label, flags->ignore_label);
    if (flags->decay_norms != NULL) {
        (void)json_object_set_new(plan, "decay_norms",
                                  json_boolean(strcmp(flags->decay_norms, "yes") == 0));
    }
    if (flags->is_flip) {
        (void)json_object_set_new(plan, "flip", json_true());
    }
    if (flags->groups.n > 0) {
        json_t *groups = json_array();
        for (int32_t i = 0; i < flags->groups.n; i++) {
            (void)json_array_append_new(groups, group_json(&flags->groups.groups[i]));
        }
        (void)json_object_set_new(plan, "groups", groups);
    }
    return plan;
}
