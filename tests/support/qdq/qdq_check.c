/* qdq_check.c - see qdq_check.h. */
#include "qdq_check.h"

#include <dunlin/trainer_advanced.h>

#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void write_floats(const char *prefix, const char *ending, const float *values, int64_t n)
{
    char path[256];
    (void)snprintf(path, sizeof path, "%s%s", prefix, ending);
    FILE *file = fopen(path, "wb");
    cr_assert_not_null(file, "%s", path);
    cr_assert_eq(fwrite(values, sizeof *values, (size_t)n, file), (size_t)n);
    cr_assert_eq(fclose(file), 0);
}

void qdq_write(dunlin_trainer *trainer, const dunlin_source *source, int n, int64_t n_inputs,
               int64_t n_outputs, const char *prefix)
{
    char path[256];
    float *x = calloc((size_t)(n * n_inputs), sizeof *x);
    float *logits = calloc((size_t)(n * n_outputs), sizeof *logits);
    int64_t *indices = calloc((size_t)n, sizeof *indices);
    int32_t *labels = calloc((size_t)n, sizeof *labels);
    cr_assert(x != NULL && logits != NULL && indices != NULL && labels != NULL);
    for (int i = 0; i < n; i++) {
        indices[i] = i;
    }
    cr_assert_eq(source->read_fn(source->ctx, indices, n, x, labels), DUNLIN_OK);
    for (int64_t i = 0; i < n * n_inputs; i++) {
        x[i] *= source->scale != 0.0F ? source->scale : 1.0F; /* zeroed: as it is */
    }
    cr_assert_eq(dunlin_trainer_predict(trainer, source, 0, n, logits), DUNLIN_OK);
    (void)snprintf(path, sizeof path, "%s.onnx", prefix);
    cr_assert_eq(dunlin_trainer_export_qdq(trainer, path), DUNLIN_OK, "%s",
                 dunlin_trainer_last_error(trainer)->text);
    write_floats(prefix, ".x", x, n * n_inputs);
    write_floats(prefix, ".y", logits, n * n_outputs);
    free(x);
    free(logits);
    free(indices);
    free(labels);
}

/* The system's Python may come after another one in the path. */
const char *qdq_python(void)
{
    static const char *const pythons[] = {"python3", "/usr/bin/python3"};
    for (int i = 0; i < 2; i++) {
        char command[128];
        (void)snprintf(command, sizeof command,
                       "%s -c 'import onnx.checker, numpy' >/dev/null 2>&1", pythons[i]);
        if (system(command) == 0) {
            return pythons[i];
        }
    }
    return NULL;
}

bool qdq_is_checkable(void)
{
    return qdq_python() != NULL;
}

int qdq_check(const char *arguments)
{
    char command[8192];
    (void)snprintf(command, sizeof command, "%s '%s' %s", qdq_python(), DUNLIN_CHECK_QDQ,
                   arguments);
    return system(command);
}

void qdq_remove(const char *prefix)
{
    static const char *const endings[] = {"onnx", "x", "y"};
    for (int i = 0; i < 3; i++) {
        char path[256];
        (void)snprintf(path, sizeof path, "%s.%s", prefix, endings[i]);
        (void)unlink(path);
    }
}
