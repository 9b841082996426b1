/*
 * builtin_examples.c - the example store as a source of the trainer's.
 *
 * Invariant: the trainer is given whole examples only, of the one size that the model takes.
 */
#include "examples/examples.h"

#include <dunlin/builtin.h>
#include <mem/sized.h>

struct dunlin_examples_feed {
    dunlin_alloc alloc;
    dunlin_examples *examples;
    char *client; /* NULL: the default */
    size_t example_bytes;
    dunlin_dtype dtype;
    dunlin_error error;
};

static dunlin_status read_examples(void *ctx, const int64_t *indices, int64_t n, void *out_x,
                                   int32_t *out_y)
{
    dunlin_examples_feed *feed = ctx;
    char *to = out_x;
    for (int64_t i = 0; i < n; i++) {
        dunlin_example_buffer buffer = {.data = to, .capacity = feed->example_bytes};
        dunlin_status status =
            dunlin_examples_read(feed->examples, feed->client, indices[i], &buffer, &feed->error);
        if (status != DUNLIN_OK && status != DUNLIN_LIMIT) {
            return status;
        }
        if (buffer.n_bytes != feed->example_bytes) {
            return dunlin__fail(&feed->error, DUNLIN_DATA, "examples", 0,
                                "example %lld of the round has %zu bytes, the model takes %zu",
                                (long long)indices[i], buffer.n_bytes, feed->example_bytes);
        }
        out_y[i] = buffer.label;
        to += feed->example_bytes;
    }
    return DUNLIN_OK;
}

static const char *error_text(void *ctx)
{
    const dunlin_examples_feed *feed = ctx;
    return feed->error.text[0] != '\0' ? feed->error.text : NULL;
}

dunlin_status dunlin_examples_feed_open(dunlin_examples *examples, const char *client,
                                        size_t example_bytes, dunlin_dtype dtype,
                                        dunlin_examples_feed **out_feed, dunlin_error *out_error)
{
    dunlin__error_clear(out_error);
    if (examples == NULL || out_feed == NULL || example_bytes == 0 ||
        example_bytes > DUNLIN_EXAMPLE_MAX_BYTES) {
        return dunlin__fail(out_error, DUNLIN_ARGUMENT, "examples", 0,
                            "a feed needs a store and examples of 1 to %d bytes, not %zu",
                            DUNLIN_EXAMPLE_MAX_BYTES, example_bytes);
    }
    *out_feed = NULL;
    dunlin_alloc alloc = examples->alloc;
    dunlin_examples_feed *feed = dunlin__alloc_zeroed(&alloc, 1, sizeof *feed);
    if (feed == NULL || !dunlin__copy_text(&alloc, client, &feed->client)) {
        dunlin__free_array(&alloc, feed, 1, sizeof *feed);
        return dunlin__fail(out_error, DUNLIN_MEMORY, "examples", 0, "no memory for a feed");
    }
    feed->alloc = alloc;
    feed->examples = examples;
    dunlin__examples_hold(examples);
    feed->example_bytes = example_bytes;
    feed->dtype = dtype;
    *out_feed = feed;
    return DUNLIN_OK;
}

void dunlin_examples_feed_fill_source(dunlin_examples_feed *feed, dunlin_source *out_source,
                                      size_t source_bytes)
{
    const dunlin_source source = {.struct_size = sizeof(dunlin_source),
                                  .ctx = feed,
                                  .read_fn = read_examples,
                                  .n_examples = DUNLIN_SOURCE_CHOSEN,
                                  .dtype = feed->dtype,
                                  .error_fn = error_text};
    dunlin__struct_fill(&source, sizeof source, out_source, source_bytes);
}

void dunlin_examples_feed_destroy(dunlin_examples_feed *feed)
{
    if (feed == NULL) {
        return;
    }
    dunlin_alloc alloc = feed->alloc;
    dunlin__examples_let_go(feed->examples);
    dunlin__free_text(&alloc, feed->client);
    dunlin__free_array(&alloc, feed, 1, sizeof *feed);
}
