/*
 * policies.c - a program that compares policies: published ones work with their library, and
 * without it the refusal names what is missing.
 */
#include <dunlin/baselines.h>
#include <dunlin/model.h>
#include <dunlin/trainer_advanced.h>

#include <stdio.h>
#include <string.h>

int main(void)
{
    dunlin_error error = {0};
    dunlin_model *model = NULL;
    dunlin_trainer_report plan = DUNLIN_TRAINER_REPORT_INIT;
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    options.policy = DUNLIN_POLICY_MELON;
    if (dunlin_model_from_zoo("lenet5", NULL, NULL, &model, &error) != DUNLIN_OK) {
        return 1;
    }
    dunlin_status without = dunlin_trainer_estimate(model, &options, &plan, &error);
    int is_named = without == DUNLIN_UNSUPPORTED && strstr(error.text, "melon") != NULL &&
                   strstr(error.text, "dunlin_baselines") != NULL;
    options.baselines = dunlin_baselines_published();
    dunlin_status with = dunlin_trainer_estimate(model, &options, &plan, &error);
    dunlin_model_destroy(model);
    printf("policies: %s, %s\n", is_named ? "named" : error.text, dunlin_status_text(with));
    return is_named && with == DUNLIN_OK ? 0 : 1;
}
