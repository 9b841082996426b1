/*
 * task_precision.c - the keys precision, grad_bits and storage of a task file's plan, and what a
 * round in integers excludes.
 */
#include "task_json.h"

#include <mem/support.h>

#include <string.h>

#define BITS_MOST 7
#define STORAGE_BYTES 16
#define N_OF_NAMES(names) (sizeof(names) / sizeof(names)[0])

/* The first is what a plan without the key has; those that begin as the second have no rate, and
 * the second itself has weights of int8. */
static const char *const precision_names[] = {"fp32",           "niti", "niti16",  "adaptive-int8",
                                              "adaptive-fixed", "octo", "wageubn", "mls"};
#define N_PRECISIONS (sizeof precision_names / sizeof precision_names[0])
#define WHOLE 1

/* "fp32" is what a plan without the key has. */
static dunlin_status read_name(const dunlin__task_place *at, const json_t *plan,
                               dunlin__server_orders *orders)
{
    char text[DUNLIN_SERVER_PRECISION_BYTES] = "";
    DUNLIN_TRY(dunlin__task_read_text(at, plan, "precision", false, text, sizeof text));
    for (size_t i = 0; i < N_PRECISIONS; i++) {
        if (text[0] == '\0' || strcmp(text, precision_names[i]) == 0) {
            memcpy(orders->precision, i == 0 ? "" : text, i == 0 ? 1 : sizeof text);
            return DUNLIN_OK;
        }
    }
    return dunlin__fail(at->error, DUNLIN_UNSUPPORTED, "task", 0,
                        "%.80s: %sprecision \"%.15s\" is not in this build; it has fp32, niti, "
                        "niti16, adaptive-int8, adaptive-fixed, octo, wageubn and mls",
                        at->file, at->object, text);
}

static dunlin_status read_bits(const dunlin__task_place *at, const json_t *plan,
                               dunlin__server_orders *orders)
{
    const json_t *list = json_object_get(plan, "grad_bits");
    const size_t n = json_array_size(list);
    bool is_right = list == NULL || (n > 0 && n <= DUNLIN_SERVER_GRAD_BITS);
    for (size_t i = 0; is_right && i < n; i++) {
        const json_t *item = json_array_get(list, i);
        const json_int_t bits = json_integer_value(item);
        is_right = json_is_integer(item) && bits >= 1 && bits <= BITS_MOST;
        orders->grad_bits[i] = (uint32_t)bits;
    }
    if (!is_right) {
        return dunlin__fail(at->error, DUNLIN_DATA, "task", 0,
                            "%.80s: %sgrad_bits must be a list of 1 to %u whole numbers from 1 to "
                            "%d",
                            at->file, at->object, DUNLIN_SERVER_GRAD_BITS, BITS_MOST);
    }
    orders->n_grad_bits = (uint32_t)n;
    return DUNLIN_OK;
}

/* Keys of a rate that integers have not; what is no key alone stands in the table of together.c. */
static dunlin_status check_keys(const dunlin__task_place *at, const json_t *plan,
                                const dunlin__server_orders *orders)
{
    static const char *const vain[] = {"lr", "lr_decay", "weight_decay", "groups", "decay_norms"};
    const bool is_given = dunlin__server_orders_are_whole(orders);
    if (!is_given && orders->n_grad_bits > 0) {
        return dunlin__fail(at->error, DUNLIN_DATA, "task", 0,
                            "%.80s: %sgrad_bits goes with precision niti", at->file, at->object);
    }
    for (size_t i = 0; is_given && i < sizeof vain / sizeof vain[0]; i++) {
        if (json_object_get(plan, vain[i]) != NULL) {
            return dunlin__fail(at->error, DUNLIN_DATA, "task", 0,
                                "%.80s: %s%s does not go with precision %.15s: its rate is "
                                "grad_bits",
                                at->file, at->object, vain[i], orders->precision);
        }
    }
    return DUNLIN_OK;
}

/* How devices store what a step keeps; "exact" is what a plan without the key has. */
static dunlin_status read_storage(const dunlin__task_place *at, const json_t *plan,
                                  dunlin__server_orders *orders)
{
    static const char *const names[] = {[DUNLIN_V1_STORAGE_EXACT] = "exact",
                                        [DUNLIN_V1_STORAGE_BF16] = "bf16",
                                        [DUNLIN_V1_STORAGE_INT8] = "int8"};
    char text[STORAGE_BYTES] = "";
    size_t i = 0;
    DUNLIN_TRY(dunlin__task_read_text(at, plan, "storage", false, text, sizeof text));
    while (text[0] != '\0' && i < N_OF_NAMES(names) && strcmp(text, names[i]) != 0) {
        i++;
    }
    if (i == N_OF_NAMES(names)) {
        return dunlin__fail(at->error, DUNLIN_UNSUPPORTED, "task", 0,
                            "%.80s: %sstorage \"%.15s\" is not in this build; it has exact, bf16 "
                            "and int8",
                            at->file, at->object, text);
    }
    orders->storage = (dunlin_v1_storage_t)i;
    if (i > 0 && orders->precision[0] != '\0') {
        return dunlin__fail(at->error, DUNLIN_DATA, "task", 0,
                            "%.80s: %sstorage %s does not go with precision %.15s", at->file,
                            at->object, names[i], orders->precision);
    }
    return DUNLIN_OK;
}

dunlin_status dunlin__task_read_precision(const dunlin__task_place *at, const json_t *root,
                                          dunlin__server_task *task)
{
    dunlin__server_orders *orders = &task->plan.orders;
    const json_t *plan = json_object_get(root, "plan");
    const dunlin__task_place inside = {at->file, "plan.", at->error};
    DUNLIN_TRY(read_name(&inside, plan, orders));
    DUNLIN_TRY(read_bits(&inside, plan, orders));
    DUNLIN_TRY(read_storage(&inside, plan, orders));
    return check_keys(&inside, plan, orders);
}

bool dunlin__server_orders_are_whole(const dunlin__server_orders *orders)
{
    return strncmp(orders->precision, precision_names[WHOLE], strlen(precision_names[WHOLE])) == 0;
}

bool dunlin__server_task_is_int8(const dunlin__server_task *task)
{
    return strcmp(task->plan.orders.precision, precision_names[WHOLE]) == 0 && task->sends_weights;
}

dunlin_v1_encoding_t dunlin__server_task_encoding(const dunlin__server_task *task, bool packs)
{
    if (task->secagg.is_on) {
        return DUNLIN_V1_ENCODING_MASKED_RING;
    }
    if (task->is_packed && packs) {
        return DUNLIN_V1_ENCODING_PACKED;
    }
    return dunlin__server_task_is_int8(task) ? DUNLIN_V1_ENCODING_INT8_SCALE
                                             : DUNLIN_V1_ENCODING_F32;
}

uint32_t dunlin__server_task_grad_bits(const dunlin__server_task *task, uint64_t round)
{
    const dunlin__server_orders *orders = &task->plan.orders;
    if (orders->n_grad_bits == 0) {
        return 0;
    }
    const uint64_t n = orders->n_grad_bits;
    const uint64_t each = task->rounds / n + (task->rounds % n != 0 ? 1 : 0);
    const uint64_t stage = round > 0 && each > 0 ? (round - 1) / each : 0;
    return orders->grad_bits[stage < n ? stage : n - 1];
}
