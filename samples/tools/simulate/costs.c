/*
 * costs.c - a file of costs, and the times that follow from it.
 */
#include "costs.h"

#include <errno.h>
#include <math.h>
#include <psa/crypto.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_BYTES (INT64_C(1) << 50)
#define MOST_US (INT64_C(3600) * SIM_US_PER_S)
#define MOST_FILE 1048576
#define PIECE_BYTES 4096

bool sim_hash_bytes(const void *bytes, size_t n, char out_text[SIM_SHA256_TEXT])
{
    uint8_t hash[32];
    size_t n_hash = 0;
    if (psa_crypto_init() != PSA_SUCCESS ||
        psa_hash_compute(PSA_ALG_SHA_256, bytes, n, hash, sizeof hash, &n_hash) != PSA_SUCCESS) {
        return false;
    }
    for (size_t i = 0; i < sizeof hash; i++) {
        (void)snprintf(out_text + 2 * i, 3, "%02x", hash[i]);
    }
    return true;
}

bool sim_hash_file(const char *path, char out_text[SIM_SHA256_TEXT])
{
    uint8_t piece[PIECE_BYTES];
    uint8_t hash[32];
    size_t n = 0;
    FILE *file = fopen(path, "re");
    psa_hash_operation_t operation = psa_hash_operation_init();
    psa_status_t status = file != NULL ? psa_crypto_init() : PSA_ERROR_STORAGE_FAILURE;
    if (status == PSA_SUCCESS) {
        status = psa_hash_setup(&operation, PSA_ALG_SHA_256);
    }
    while (status == PSA_SUCCESS && (n = fread(piece, 1, sizeof piece, file)) > 0) {
        status = psa_hash_update(&operation, piece, n);
    }
    if (status == PSA_SUCCESS && ferror(file) == 0) {
        status = psa_hash_finish(&operation, hash, sizeof hash, &n);
    } else {
        status = PSA_ERROR_STORAGE_FAILURE;
        (void)psa_hash_abort(&operation);
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    for (size_t i = 0; status == PSA_SUCCESS && i < sizeof hash; i++) {
        (void)snprintf(out_text + 2 * i, 3, "%02x", hash[i]);
    }
    return status == PSA_SUCCESS;
}

/* ---- reading ---- */

static bool take(const json_t *object, const char *key, int64_t low, int64_t high, int64_t *out,
                 char *what)
{
    const json_t *value = json_object_get(object, key);
    *out = json_is_integer(value) ? (int64_t)json_integer_value(value) : low - 1;
    if (*out < low || *out > high) {
        (void)snprintf(what, SIM_ERROR_BYTES, "\"%s\" is missing or outside of %lld to %lld", key,
                       (long long)low, (long long)high);
        return false;
    }
    return true;
}

static bool take_row(const json_t *object, sim_costs *out, char *what)
{
    int64_t budget = 0;
    int64_t planned = 0;
    int64_t step_us = 0;
    const uint64_t before = out->n_rows > 0 ? out->rows[out->n_rows - 1].budget_bytes : 0;
    if (!take(object, "budget_bytes", (int64_t)before + 1, MOST_BYTES, &budget, what) ||
        !take(object, "planned_bytes", 1, budget, &planned, what) ||
        !take(object, "step_us", 1, MOST_US, &step_us, what)) {
        return false;
    }
    out->rows[out->n_rows++] = (sim_cost){(uint64_t)budget, (uint64_t)planned, step_us};
    return true;
}

static bool take_all(const json_t *object, sim_costs *out, char *what)
{
    int64_t version = 0;
    int64_t least = 0;
    int64_t none = 0;
    const char *model = json_string_value(json_object_get(object, "model"));
    const json_t *rows = json_object_get(object, "rows");
    if (!take(object, "dunlin_costs", 1, 1, &version, what) ||
        !take(object, "params", 1, MOST_BYTES, &out->n_params, what) ||
        !take(object, "batch", 1, 65536, &out->batch, what) ||
        !take(object, "least_bytes", 1, MOST_BYTES, &least, what) ||
        !take(object, "none_bytes", 1, MOST_BYTES, &none, what) ||
        !take(object, "evaluate_us", 1, MOST_US, &out->evaluate_us, what)) {
        return false;
    }
    if (model == NULL || strlen(model) >= sizeof out->model) {
        (void)snprintf(what, SIM_ERROR_BYTES, "\"model\" is missing or too long");
        return false;
    }
    if (json_array_size(rows) < 1 || json_array_size(rows) > SIM_ROWS) {
        (void)snprintf(what, SIM_ERROR_BYTES, "\"rows\" has %zu entries, outside of 1 to %d",
                       json_array_size(rows), SIM_ROWS);
        return false;
    }
    for (size_t i = 0; i < json_array_size(rows); i++) {
        char inner[SIM_ERROR_BYTES];
        if (!take_row(json_array_get(rows, i), out, inner)) {
            (void)snprintf(what, SIM_ERROR_BYTES, "entry %zu of \"rows\": %.200s", i, inner);
            return false;
        }
    }
    memcpy(out->model, model, strlen(model) + 1);
    out->least_bytes = (uint64_t)least;
    out->none_bytes = (uint64_t)none;
    return true;
}

/* The whole file, in memory of MOST_FILE bytes at most; NULL: `what` says why. */
static json_t *read_file(const char *path, char what[SIM_ERROR_BYTES])
{
    json_error_t error;
    FILE *file = fopen(path, "re");
    char *text = file != NULL ? malloc(MOST_FILE + 1) : NULL;
    const size_t n = text != NULL ? fread(text, 1, MOST_FILE + 1, file) : 0;
    json_t *object = NULL;
    if (text == NULL || ferror(file) != 0) {
        (void)snprintf(what, SIM_ERROR_BYTES, "%s", strerror(errno));
    } else if (n > MOST_FILE) {
        (void)snprintf(what, SIM_ERROR_BYTES, "it has more than %d bytes", MOST_FILE);
    } else {
        const size_t mark = n >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0; /* editors' */
        object = json_loadb(text + mark, n - mark, JSON_REJECT_DUPLICATES, &error);
        if (object == NULL) {
            (void)snprintf(what, SIM_ERROR_BYTES, "line %d: it is no JSON: %.160s",
                           error.line > 0 ? error.line : 1, error.text);
        }
    }
    free(text);
    if (file != NULL) {
        (void)fclose(file);
    }
    return object;
}

bool sim_costs_read(const char *path, sim_costs *out_costs, char out_error[SIM_ERROR_BYTES])
{
    char what[SIM_ERROR_BYTES] = "";
    memset(out_costs, 0, sizeof *out_costs);
    json_t *object = read_file(path, what);
    bool is_ok = object != NULL && sim_hash_file(path, out_costs->sha256);
    is_ok = is_ok && take_all(object, out_costs, what);
    json_decref(object);
    if (!is_ok) {
        (void)snprintf(out_error, SIM_ERROR_BYTES, "--costs %.160s: %.300s", path, what);
        sim_error_clean(out_error);
    }
    return is_ok;
}

bool sim_costs_fit(const sim_costs *costs, const char *path, const fleet_flags *flags,
                   const fleet_world *world, char out_error[SIM_ERROR_BYTES])
{
    if (strcmp(costs->model, flags->model) == 0 && costs->n_params == world->n_params &&
        costs->batch == world->batch) {
        return true;
    }
    (void)snprintf(
        out_error, SIM_ERROR_BYTES,
        "--costs %.100s: they are of %.60s with %lld parameters and batch %lld; this run "
        "has %.60s with %lld and batch %lld",
        path, costs->model, (long long)costs->n_params, (long long)costs->batch, flags->model,
        (long long)world->n_params, (long long)world->batch);
    sim_error_clean(out_error);
    return false;
}

/* ---- times ---- */

int32_t sim_costs_find(const sim_costs *costs, uint64_t memory_bytes)
{
    int32_t found = -1;
    for (int32_t i = 0; i < costs->n_rows && costs->rows[i].budget_bytes <= memory_bytes; i++) {
        found = i;
    }
    return found;
}

static int64_t scaled_us(int64_t batch_us, int64_t batch, double time_factor, int64_t n)
{
    return (int64_t)ceil((double)n * (double)batch_us * time_factor / (double)batch);
}

int64_t sim_train_us(const sim_costs *costs, int32_t row, double time_factor, int64_t n)
{
    return scaled_us(costs->rows[row].step_us, costs->batch, time_factor, n);
}

int64_t sim_evaluate_us(const sim_costs *costs, double time_factor, int64_t n)
{
    return scaled_us(costs->evaluate_us, costs->batch, time_factor, n);
}
