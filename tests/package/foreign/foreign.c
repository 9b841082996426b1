/*
 * foreign.c - a program of somebody else: uses the installed library, trainer and client, and
 * nothing of the tree.
 */
#include <dunlin/client.h>
#include <dunlin/trainer_advanced.h>

#include <stdio.h>

int main(void)
{
    dunlin_model *model = NULL;
    dunlin_error error = {0};
    if (dunlin_model_from_zoo("lenet5", NULL, NULL, &model, &error) != DUNLIN_OK) {
        fprintf(stderr, "foreign: %s\n", error.text);
        return 1;
    }
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    options.batch = 8;
    dunlin_trainer_report report = DUNLIN_TRAINER_REPORT_INIT;
    dunlin_status status = dunlin_trainer_estimate(model, &options, &report, &error);
    dunlin_model_destroy(model);
    if (status != DUNLIN_OK || report.planned_bytes == 0) {
        fprintf(stderr, "foreign: %s\n", error.text);
        return 1;
    }
    dunlin_runtime *runtime = NULL;
    status = dunlin_runtime_create(NULL, &runtime, &error);
    if (status != DUNLIN_ARGUMENT) {
        fprintf(stderr, "foreign: a runtime without options gave %s\n", dunlin_status_name(status));
        return 1;
    }
    printf("dunlin %s: a step of lenet5 takes %llu bytes\n", dunlin_version_string(),
           (unsigned long long)report.planned_bytes);
    return 0;
}
