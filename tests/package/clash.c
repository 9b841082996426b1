/*
 * clash.c - an app with another nanopb: functions of nanopb's names that answer "failed" to all.
 * The shared library must neither call them nor hide them from the app. `test_clash FILE` writes a
 * network to FILE and reads it again, which goes through both halves of nanopb.
 */
#include <dunlin/trainer.h>

#include <stdbool.h>
#include <stdio.h>

static int n_calls;

bool pb_decode(void *stream, const void *fields, void *message);
bool pb_decode_varint(void *stream, void *number);
bool pb_encode(void *stream, const void *fields, const void *message);
bool pb_encode_tag(void *stream, int type, unsigned tag);

bool pb_decode(void *stream, const void *fields, void *message)
{
    (void)stream, (void)fields, (void)message;
    n_calls++;
    return false;
}

bool pb_decode_varint(void *stream, void *number)
{
    (void)stream, (void)number;
    n_calls++;
    return false;
}

bool pb_encode(void *stream, const void *fields, const void *message)
{
    (void)stream, (void)fields, (void)message;
    n_calls++;
    return false;
}

bool pb_encode_tag(void *stream, int type, unsigned tag)
{
    (void)stream, (void)type, (void)tag;
    n_calls++;
    return false;
}

static dunlin_status write_and_read(const char *path, dunlin_error *error)
{
    dunlin_model *model = NULL;
    dunlin_trainer *trainer = NULL;
    dunlin_trainer_options options = DUNLIN_TRAINER_OPTIONS_INIT;
    options.batch = 8;
    dunlin_status status = dunlin_model_from_zoo("lenet5", NULL, NULL, &model, error);
    if (status == DUNLIN_OK) {
        status = dunlin_trainer_create(model, &options, &trainer, error);
    }
    if (status == DUNLIN_OK) {
        status = dunlin_trainer_export_onnx(trainer, path);
    }
    dunlin_trainer_destroy(trainer);
    dunlin_model_destroy(model);
    model = NULL;
    if (status == DUNLIN_OK) {
        status = dunlin_model_open(path, NULL, &model, error);
    }
    dunlin_model_destroy(model);
    return status;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: test_clash FILE\n");
        return 2;
    }
    dunlin_error error = {0};
    dunlin_status status = write_and_read(argv[1], &error);
    if (status != DUNLIN_OK || n_calls != 0) {
        fprintf(stderr, "clash: %s: %s; the library called the app's nanopb %d times\n",
                dunlin_status_name(status), error.text, n_calls);
        return 1;
    }
    /* The app's own calls reach its own functions. */
    if (pb_decode(NULL, NULL, NULL) || n_calls != 1) {
        fprintf(stderr, "clash: the app's own pb_decode was not called\n");
        return 1;
    }
    return 0;
}
