/*
 * join_common.c - a node is replaced, and what it alone read is dropped.
 */
#include "join.h"

/* One reader less; nodes that no one reads any more go too. */
static void drop(const dunlin_joiner *j, uint32_t value)
{
    enum { MOST = 256 }; /* patterns are far smaller */
    uint32_t stack[MOST];
    uint32_t n = 0;
    stack[n++] = value;
    while (n > 0) {
        dunlin_net_value *at = &j->net->values[stack[--n]];
        at->n_consumers--;
        if (at->n_consumers > 0 || at->producer == DUNLIN_NET_NONE) {
            continue;
        }
        const dunlin_net_node *node = &j->net->nodes[at->producer];
        j->is_dead[at->producer] = true;
        for (uint32_t i = 0; i < node->n_inputs && n < MOST; i++) {
            stack[n++] = node->inputs[i];
        }
    }
}

void dunlin__join_drop(const dunlin_joiner *j, const dunlin_net_node *node)
{
    j->is_dead[node - j->net->nodes] = true;
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        drop(j, node->inputs[i]);
    }
}

/* `node` becomes `made`, under its own name and with its own output. */
void dunlin__join_replace(const dunlin_joiner *j, dunlin_net_node *node,
                          const dunlin_net_node *made)
{
    dunlin_net_node old = *node;
    const dunlin_net_node next = *made; /* may hold what `node` points to */
    for (uint32_t i = 0; i < next.n_inputs; i++) {
        j->net->values[next.inputs[i]].n_consumers++;
    }
    for (uint32_t i = 0; i < old.n_inputs; i++) {
        drop(j, old.inputs[i]);
    }
    *node = next;
    node->name = old.name;
    node->output = old.output;
}
