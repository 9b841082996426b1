/*
 * task_orders.h - what a plan orders beside the plain training, as the learner reads it.
 */
#ifndef DUNLIN_SDK_TASK_ORDERS_H
#define DUNLIN_SDK_TASK_ORDERS_H

#include <dunlin/learner.h>
#include <wire/messages.h>

/* Holds what the task points to; the texts are the plan's. */
typedef struct dunlin__task_orders {
    dunlin_task_group groups[DUNLIN_TASK_GROUPS];
    dunlin_task_parameters parameters;
    dunlin_task_schedule schedule;
} dunlin__task_orders;

/* The task of an assignment, but for what the client knows of a round that is gone on with.
 * `assignment` and `orders` must stay as long as the task. */
void dunlin__task_take(const dunlin__assignment *assignment, dunlin__task_orders *orders,
                       dunlin_task *out_task);

/* Fills in the task's orders from a plan that has been checked. `plan` and `orders` must stay as
 * long as the task. */
void dunlin__task_take_orders(const dunlin__training_plan *plan, dunlin__task_orders *orders,
                              dunlin_task *task);

#endif
