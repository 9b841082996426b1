/*
 * tools.c - a program about the library: the synthetic data set and the drawing of a plan come with
 * their library, and the refusal without it names what is missing.
 */
#include <dunlin/tools.h>

#include <stdio.h>
#include <string.h>

static void look(void *ctx, const char *text)
{
    int *has_end = ctx;
    *has_end = *has_end || strstr(text, "</svg>") != NULL;
}

int main(void)
{
    dunlin_error error = {0};
    dunlin_model *model = NULL;
    dunlin_trainer *trainer = NULL;
    dunlin_dataset *set = NULL;
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    options.batch = 8;
    if (dunlin_model_from_zoo("lenet5", NULL, NULL, &model, &error) != DUNLIN_OK ||
        dunlin_trainer_create(model, &options, &trainer, &error) != DUNLIN_OK) {
        fprintf(stderr, "tools: %s\n", error.text);
        return 1;
    }
    int is_drawn = 0;
    dunlin_trainer_draw_plan(trainer, "lenet5", look, &is_drawn);
    dunlin_status without =
        dunlin_dataset_open("synthetic", NULL, DUNLIN_SPLIT_TEST, NULL, NULL, &set, &error);
    int is_named = without == DUNLIN_UNSUPPORTED && strstr(error.text, "dunlin_tools") != NULL;
    dunlin_status with =
        dunlin_tools_dataset_open("synthetic", NULL, DUNLIN_SPLIT_TEST, NULL, NULL, &set, &error);
    printf("tools: %s, %s, %s\n", is_drawn ? "drawn" : "not drawn", is_named ? "named" : error.text,
           dunlin_status_text(with));
    dunlin_dataset_close(set);
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
    return is_drawn && is_named && with == DUNLIN_OK ? 0 : 1;
}
