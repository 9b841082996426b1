/*
 * bytes.h - a trainer's state and its model as bytes, where an app keeps them in memory, in a
 * database or in a message and not in a file.
 *
 * Example: what was learned, kept in memory and taken over again.
 *
 * @code
 * extern dunlin_trainer *trainer;
 * dunlin_buffer saved = {0};
 * if (dunlin_trainer_write_checkpoint(trainer, dunlin_buffer_add, &saved) != DUNLIN_OK ||
 *     dunlin_trainer_read_checkpoint(trainer, saved.at, saved.n) != DUNLIN_OK) {
 *     printf("%s\n", dunlin_trainer_last_error(trainer)->text);
 * }
 * dunlin_buffer_free(&saved);
 * @endcode
 */
#ifndef DUNLIN_BYTES_H
#define DUNLIN_BYTES_H

#include <dunlin/trainer.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Takes the next n bytes, which are valid during the call. A status other than OK ends the
 * writing. */
typedef dunlin_status (*dunlin_write_fn)(void *ctx, const void *bytes, size_t n);

/** Bytes in a block of memory that grows. Begins as zeros. This struct is frozen. */
typedef struct dunlin_buffer {
    void *at;
    size_t n;           /* that are there */
    size_t capacity;    /* of the block */
    dunlin_alloc alloc; /* where the block comes from; zeros: the C library */
} dunlin_buffer;

/** A dunlin_write_fn: adds to the dunlin_buffer at `buffer`, which grows as it must.
 *
 * @return OK; MEMORY, with what was there unchanged. */
DUNLIN_API dunlin_status dunlin_buffer_add(void *buffer, const void *more, size_t n);
/** Gives the block back and zeroes the struct. */
DUNLIN_API void dunlin_buffer_free(dunlin_buffer *buffer);

/**
 * The bytes of the file that dunlin_trainer_save_checkpoint() writes, in order, to a function of
 * the app's. Bytes that came before a failure are no checkpoint.
 *
 * @return OK; ARGUMENT; CALLBACK if the function fails; STATE if the trainer is torn; NUMERIC if a
 * slot that the gradient hook wrote is not finite.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_trainer_write_checkpoint(dunlin_trainer *trainer,
                                                                          dunlin_write_fn write_fn,
                                                                          void *ctx);
/**
 * dunlin_trainer_load_checkpoint() from memory: everything is checked before anything changes.
 *
 * @return as that, but never IO.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_trainer_read_checkpoint(dunlin_trainer *trainer,
                                                                         const void *bytes,
                                                                         size_t n);

/**
 * The bytes of the file that dunlin_trainer_export_onnx() writes, as above;
 * dunlin_model_open_memory() reads them.
 *
 * @return OK; ARGUMENT, CALLBACK, STATE, LIMIT (2 GiB), MEMORY.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_trainer_write_onnx(dunlin_trainer *trainer,
                                                                    dunlin_write_fn write_fn,
                                                                    void *ctx);

/**
 * The bytes of the file that dunlin_trainer_export_qdq() writes, as above.
 *
 * @return OK; UNSUPPORTED in float32; ARGUMENT, CALLBACK, STATE, LIMIT (2 GiB), MEMORY.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_trainer_write_qdq(dunlin_trainer *trainer,
                                                                   dunlin_write_fn write_fn,
                                                                   void *ctx);

/** Elements [first, first + n) of a model's parameter `index`, in the shape and order that it has
 * in ONNX. A status other than OK ends the writing. */
typedef dunlin_status (*dunlin_parameter_read_fn)(void *ctx, int32_t index, int64_t first,
                                                  int64_t n, float *out_values);

/**
 * A model with other weights, which no trainer holds, as the ONNX file that
 * dunlin_trainer_export_onnx() writes: whole or not at all. `read_fn` is asked for each parameter
 * in the model's order, from its first element to its last, in pieces of at most 16,384; no more
 * of the weights is in memory. The model stays as it is.
 *
 * @return OK; ARGUMENT; NUMERIC for a value that is not finite; IO, SPACE, LIMIT (2 GiB), MEMORY;
 * what `read_fn` returns. A file that was there stays as it was then.
 */
DUNLIN_NODISCARD DUNLIN_API dunlin_status dunlin_model_export_onnx(const dunlin_model *model,
                                                                   dunlin_parameter_read_fn read_fn,
                                                                   void *ctx, const char *path,
                                                                   dunlin_error *out_error);

#ifdef __cplusplus
}
#endif

#endif
