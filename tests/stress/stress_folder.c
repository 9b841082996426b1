/*
 * stress_folder.c - a trainer reads pictures of a folder that several threads decode ahead, in room
 * for less than all of them: stops in the middle of an epoch, evaluations between, a file that is
 * broken while it trains and mended again.
 */
#include <dunlin/dataset.h>
#include <dunlin/pipeline.h>
#include <dunlin/trainer.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef DUNLIN_HAS_PNG

#include <png.h>

#define N_PICTURES 40
#define SIDE 40
#define DECODE_BYTES 200000 /* for two pictures at a time */
#define N_ROUNDS 4

static int fail(const char *what)
{
    (void)fprintf(stderr, "stress_folder: %s\n", what);
    return 1;
}

static void name_of(char path[512], const char *folder, int i)
{
    (void)snprintf(path, 512, "%s/c%d/%02d.png", folder, i % 2, i);
}

static int write_picture(const char *folder, int i)
{
    char path[512];
    static uint8_t pixels[SIDE * SIDE * 3];
    for (size_t k = 0; k < sizeof pixels; k++) {
        pixels[k] = (uint8_t)((size_t)(i + 1) * (k / 3 + 7));
    }
    png_image image;
    memset(&image, 0, sizeof image);
    image.version = PNG_IMAGE_VERSION;
    image.width = SIDE;
    image.height = SIDE;
    image.format = PNG_FORMAT_RGB;
    name_of(path, folder, i);
    return png_image_write_to_file(&image, path, 0, pixels, 0, NULL) != 0 ? 0 : fail(path);
}

static int break_picture(const char *folder, int i)
{
    char path[512];
    name_of(path, folder, i);
    FILE *file = fopen(path, "wb");
    if (file == NULL) {
        return fail(path);
    }
    (void)fputs("\x89PNG\r\n\x1A\n and no more", file);
    return fclose(file) == 0 ? 0 : fail(path);
}

/* Steps until an epoch ends or something fails; the last status. */
static dunlin_status fit_epoch(dunlin_trainer *trainer, const dunlin_source *source)
{
    dunlin_fit_cursor cursor = {0};
    dunlin_fit_options fit = DUNLIN_FIT_OPTIONS_INIT;
    fit.epochs = 1;
    fit.max_steps = 2;
    dunlin_status status = DUNLIN_OK;
    while (status == DUNLIN_OK && !cursor.is_done) {
        dunlin_metrics metrics = {0};
        status = dunlin_trainer_fit(trainer, source, &fit, &cursor, &metrics);
        if (status == DUNLIN_OK) {
            status = dunlin_trainer_evaluate(trainer, source, 0, 4, &metrics);
        }
    }
    return status;
}

static int run_round(dunlin_trainer *trainer, const char *folder, const dunlin_dataset *set,
                     int32_t n_threads)
{
    dunlin_source stored;
    dunlin_source source;
    dunlin_pipeline *pipeline = NULL;
    dunlin_error error = {0};
    dunlin_dataset_source(set, &stored);
    const dunlin_shape shape = dunlin_dataset_shape(set);
    dunlin_pipeline_options options = DUNLIN_PIPELINE_OPTIONS_INIT;
    options.crop_height = 28;
    options.is_random_crop = true;
    options.padding = 2;
    options.prefetch_bytes = 60000;
    options.prefetch_threads = n_threads;
    options.prefetch_examples = 16;
    if (dunlin_pipeline_create(&stored, &shape, &options, NULL, &pipeline, &error) != DUNLIN_OK) {
        return fail(error.text);
    }
    dunlin_pipeline_source(pipeline, &source);
    int n_wrong = fit_epoch(trainer, &source) == DUNLIN_OK ? 0 : fail("an epoch fails");
    n_wrong += break_picture(folder, 11);
    n_wrong +=
        fit_epoch(trainer, &source) == DUNLIN_CALLBACK &&
                strstr(dunlin_trainer_last_error(trainer)->text, "c1/11.png: damaged") != NULL
            ? 0
            : fail(dunlin_trainer_last_error(trainer)->text);
    n_wrong += write_picture(folder, 11);
    n_wrong += fit_epoch(trainer, &source) == DUNLIN_OK ? 0 : fail("mended, it fails");
    dunlin_pipeline_destroy(pipeline);
    return n_wrong;
}

static int run(const char *folder)
{
    char name[600];
    dunlin_error error = {0};
    dunlin_dataset *set = NULL;
    dunlin_model *model = NULL;
    dunlin_trainer *trainer = NULL;
    dunlin_dataset_options data_options = DUNLIN_DATASET_OPTIONS_INIT;
    data_options.shape = (dunlin_shape){.n_dims = 3, .dims = {1, 28, 28}};
    data_options.decode_bytes = DECODE_BYTES;
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    options.batch = 8;
    (void)snprintf(name, sizeof name, "folder:%s,test=5%%", folder);
    if (dunlin_dataset_open(name, NULL, DUNLIN_SPLIT_TRAIN, &data_options, NULL, &set, &error) !=
            DUNLIN_OK ||
        dunlin_model_from_zoo("lenet5", NULL, NULL, &model, &error) != DUNLIN_OK ||
        dunlin_trainer_create(model, &options, &trainer, &error) != DUNLIN_OK) {
        return fail(error.text);
    }
    int n_wrong = 0;
    for (int32_t i = 0; i < N_ROUNDS; i++) {
        n_wrong += run_round(trainer, folder, set, i + 1);
    }
    n_wrong +=
        dunlin_dataset_decode_peak(set) <= DECODE_BYTES ? 0 : fail("more than the room is taken");
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
    dunlin_dataset_close(set);
    return n_wrong;
}

int main(void)
{
    char folder[] = "/tmp/dunlin-stress-XXXXXX";
    char path[512];
    if (mkdtemp(folder) == NULL) {
        return fail("no folder");
    }
    int n_wrong = 0;
    for (int i = 0; i < 2; i++) {
        (void)snprintf(path, sizeof path, "%s/c%d", folder, i);
        n_wrong += mkdir(path, 0700) == 0 ? 0 : fail(path);
    }
    for (int i = 0; i < N_PICTURES; i++) {
        n_wrong += write_picture(folder, i);
    }
    n_wrong += n_wrong == 0 ? run(folder) : 0;
    for (int i = 0; i < N_PICTURES; i++) {
        name_of(path, folder, i);
        (void)unlink(path);
    }
    for (int i = 0; i < 2; i++) {
        (void)snprintf(path, sizeof path, "%s/c%d", folder, i);
        (void)rmdir(path);
    }
    (void)rmdir(folder);
    (void)printf("stress_folder: %d rounds, %d wrong\n", N_ROUNDS, n_wrong);
    return n_wrong == 0 ? 0 : 1;
}

#else

int main(void)
{
    (void)printf("stress_folder: this build has no libpng\n");
    return 0;
}

#endif
