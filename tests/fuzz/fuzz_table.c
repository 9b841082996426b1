/*
 * fuzz_table.c - any bytes as a table of activity data, plain or gzip: refused in one line that
 * names the file, or read to rows within their limits. The first byte picks the format.
 */
#include <mem/support.h>

#include <data/readers/feature_rows.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool is_kept)
{
    if (!is_kept) {
        __builtin_trap();
    }
}

typedef struct limits {
    int32_t n_features, n_classes;
    bool may_miss;
} limits;

static dunlin_status check_row(void *ctx, int64_t person, int32_t label, const float *values,
                               dunlin_error *error)
{
    (void)error;
    const limits *of = ctx;
    require(person >= 1 && person <= DUNLIN_FEATURES_MOST_PERSONS);
    require(label >= 0 && label < of->n_classes);
    for (int32_t i = 0; i < of->n_features; i++) {
        require(isfinite(values[i]) || (of->may_miss && isnan(values[i])));
    }
    return DUNLIN_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    const bool is_wisdm = data[0] % 2 == 0;
    limits of = {DUNLIN_SPSW_FEATURES, DUNLIN_SPSW_CLASSES, false};
    if (is_wisdm) {
        of = (limits){DUNLIN_WISDM_FEATURES, DUNLIN_WISDM_CLASSES, true};
    }
    const dunlin_feature_visitor visitor = {&of, check_row};
    dunlin_alloc_counter counter;
    dunlin_alloc_counter_init(&counter, NULL);
    dunlin_bytes bytes;
    dunlin_error error = {0};
    dunlin_status status =
        dunlin__bytes_open_memory(&bytes, "fuzz", data + 1, size - 1, &counter.hooks, &error);
    if (status == DUNLIN_OK) {
        status = is_wisdm ? dunlin__wisdm_read(&bytes, &visitor, &error)
                          : dunlin__spsw_read(&bytes, 7, true, &visitor, &error);
        dunlin__bytes_close(&bytes);
    }
    require(counter.now_bytes == 0);
    require(status == DUNLIN_OK || (error.status == status && error.text[0] != '\0'));
    require(status != DUNLIN_DATA || strstr(error.text, "fuzz:") != NULL);
    require(strchr(error.text, '\n') == NULL);
    return 0;
}
