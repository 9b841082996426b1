/*
 * task_json.h - values of a task file's JSON: tables of numbers, texts, what is unknown.
 *
 * Every call fails with DATA and one line that names the file, the key and its limit.
 */
#ifndef DUNLIN_SERVER_TASK_JSON_H
#define DUNLIN_SERVER_TASK_JSON_H

#include "task.h"

#include <jansson.h>
#include <stddef.h>

typedef enum dunlin__task_kind {
    DUNLIN_TASK_U32,
    DUNLIN_TASK_U64,
    DUNLIN_TASK_REAL,
    DUNLIN_TASK_BOOL
} dunlin__task_kind;

typedef struct dunlin__task_field {
    const char *key;
    size_t offset;
    dunlin__task_kind kind;
    double least;
    double most;
    double fallback; /* negative: the key must be there */
} dunlin__task_field;

/* Where a value stands, for texts: "tasks.json: plan.lr". */
typedef struct dunlin__task_place {
    const char *file;
    const char *object; /* "" or "plan." */
    dunlin_error *error;
} dunlin__task_place;

/* Reads every row's key of the object into the task; a key that is absent gives the fallback. */
DUNLIN_NODISCARD dunlin_status dunlin__task_read_fields(const dunlin__task_place *at,
                                                        const json_t *object,
                                                        const dunlin__task_field *rows,
                                                        size_t n_rows, dunlin__server_task *task);

/* Refuses a key that is neither a row's nor one of the names. */
DUNLIN_NODISCARD dunlin_status dunlin__task_refuse_unknown(const dunlin__task_place *at,
                                                           json_t *object,
                                                           const dunlin__task_field *rows,
                                                           size_t n_rows, const char *const *names,
                                                           size_t n_names);

/* An object inside the task: its key, and the keys that it may have. */
typedef struct dunlin__task_object {
    const char *key;
    const dunlin__task_field *rows;
    size_t n_rows;
    const char *const *names; /* of what the caller reads itself */
    size_t n_names;
} dunlin__task_object;

/* Reads the rows of the object; one that is absent is empty. */
DUNLIN_NODISCARD dunlin_status dunlin__task_read_object(const dunlin__task_place *at,
                                                        const json_t *root,
                                                        const dunlin__task_object *what,
                                                        dunlin__server_task *task);

/* An optional or required text of at most capacity - 1 bytes; "" where it is absent. */
DUNLIN_NODISCARD dunlin_status dunlin__task_read_text(const dunlin__task_place *at,
                                                      const json_t *object, const char *key,
                                                      bool is_required, char *out_text,
                                                      size_t capacity);

/* Those keys of the plan that are no numbers (task_orders.c), and what goes together of all; after
 * the plan's numbers have been read. */
#define DUNLIN_TASK_ORDER_NAMES 11u
extern const char *const dunlin__task_order_names[DUNLIN_TASK_ORDER_NAMES];
DUNLIN_NODISCARD dunlin_status dunlin__task_read_orders(const dunlin__task_place *at,
                                                        const json_t *root,
                                                        dunlin__server_task *task);

/* The plan's precision and its bits, its storage, and what they exclude (task_precision.c); after
 * the other orders. UNSUPPORTED for a precision or a storage that there is not. */
DUNLIN_NODISCARD dunlin_status dunlin__task_read_precision(const dunlin__task_place *at,
                                                           const json_t *root,
                                                           dunlin__server_task *task);

/* The strategy and its keys (task_strategy.c), which stand beside the plan. */
#define DUNLIN_TASK_STRATEGY_NAMES 7u
extern const char *const dunlin__task_strategy_names[DUNLIN_TASK_STRATEGY_NAMES];
DUNLIN_NODISCARD dunlin_status dunlin__task_read_strategy(const dunlin__task_place *at,
                                                          const json_t *root,
                                                          dunlin__server_task *task);
/* How long rounds last, and when no other begins (task_rounds.c); after the task's numbers have
 * been read. */
DUNLIN_NODISCARD dunlin_status dunlin__task_read_rounds(const dunlin__task_place *at,
                                                        const json_t *root,
                                                        dunlin__server_task *task);

/* Noise on rounds, `dp` (task_dp.c), and what it costs; after all that it depends on has been
 * read. */
DUNLIN_NODISCARD dunlin_status dunlin__task_read_dp(const dunlin__task_place *at,
                                                    const json_t *root, const dunlin_alloc *alloc,
                                                    dunlin__server_task *task);

/* Rounds for unequal devices, `buffered` and `selection` (task_unequal.c); after all that it
 * depends on has been read. */
DUNLIN_NODISCARD dunlin_status dunlin__task_read_unequal(const dunlin__task_place *at,
                                                         const json_t *root,
                                                         dunlin__server_task *task);

/* Rounds of which the server sees a sum alone, `secagg` (task_secagg.c); after all that it depends
 * on has been read. */
DUNLIN_NODISCARD dunlin_status dunlin__task_read_secagg(const dunlin__task_place *at,
                                                        const json_t *root,
                                                        const dunlin_alloc *alloc,
                                                        dunlin__server_task *task);

/* What does not go with noise that devices add (task_noise.c); NULL: nothing. After `dp` has been
 * read. */
const char *dunlin__task_noise_conflict(const dunlin__server_task *task, const json_t *root);
/* The whole numbers of that noise, and what it costs: after the terms of `secagg` but for
 * value_limit have been settled. Without such noise nothing. */
DUNLIN_NODISCARD dunlin_status dunlin__task_settle_noise(const dunlin__task_place *at,
                                                         const dunlin_alloc *alloc,
                                                         dunlin__server_task *task);

/* The table of tensors of an application's own model (task_tensors.c), or the named model alone.
 * The tensors are the task's, also after a failure. */
DUNLIN_NODISCARD dunlin_status dunlin__task_read_tensors(const dunlin__task_place *at,
                                                         const json_t *root,
                                                         const dunlin_alloc *alloc,
                                                         dunlin__server_task *task);

#endif
