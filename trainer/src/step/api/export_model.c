/*
 * export_model.c - writes a model's network as an ONNX file, with weights that the app gives.
 *
 * Invariant: the weights pass through one block; a model with a weight that is not finite does not
 * become a file.
 */
#include "convert/read/onnx.h"
#include "kernels/simd/finite.h"

#include <dunlin/bytes.h>
#include <mem/support.h>

#include <inttypes.h>

typedef struct given {
    const dunlin_model *model;
    dunlin_parameter_read_fn read_fn;
    void *ctx;
} given;

static dunlin_status read_given(void *ctx, uint32_t param_index, int64_t first, int64_t n,
                                float *out, dunlin_error *error)
{
    const given *from = ctx;
    const char *name = from->model->net.params[param_index].name;
    const dunlin_status status = from->read_fn(from->ctx, (int32_t)param_index, first, n, out);
    if (status != DUNLIN_OK) {
        return dunlin__fail(error, status, "onnx", 0,
                            "the model is not written: '%.100s' cannot be read (%s)", name,
                            dunlin_status_text(status));
    }
    const int64_t n_finite = finite_count(out, n);
    if (n_finite < n) {
        return dunlin__fail(error, DUNLIN_NUMERIC, "onnx", 0,
                            "the model is not written: element %" PRId64
                            " of '%.100s' is not finite",
                            first + n_finite, name);
    }
    return DUNLIN_OK;
}

dunlin_status dunlin_model_export_onnx(const dunlin_model *model, dunlin_parameter_read_fn read_fn,
                                       void *ctx, const char *path, dunlin_error *out_error)
{
    dunlin__error_clear(out_error);
    if (model == NULL || read_fn == NULL || path == NULL) {
        return dunlin__fail(out_error, DUNLIN_ARGUMENT, "onnx", 0, "%s is NULL",
                            model == NULL     ? "model"
                            : read_fn == NULL ? "read_fn"
                                              : "path of the export");
    }
    given from = {.model = model, .read_fn = read_fn, .ctx = ctx};
    dunlin_outfile file;
    DUNLIN_TRY(dunlin__outfile_open(&file, path, 0666, out_error));
    const dunlin_status status =
        dunlin__onnx_write(&model->net, &file, read_given, &from, out_error);
    return dunlin__outfile_close(&file, status, out_error);
}
