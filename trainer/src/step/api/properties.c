/*
 * properties.c - the application's texts by name, kept in checkpoints.
 *
 * Invariant: a list changes as a whole or not at all; its bytes are counted like all tables.
 */
#include "properties.h"

#include "step/context/context.h"
#include "step/context/guard.h"

#include <dunlin/trainer_advanced.h>
#include <mem/support.h>

#include <string.h>

static dunlin_property *find(const dunlin_properties *properties, const char *name)
{
    for (size_t i = 0; i < properties->n; i++) {
        if (strcmp(properties->items[i].name, name) == 0) {
            return &properties->items[i];
        }
    }
    return NULL;
}

static bool make_block(const dunlin_alloc *alloc, const char *name, const char *text,
                       dunlin_property *out)
{
    const size_t name_bytes = strlen(name) + 1;
    const size_t text_bytes = strlen(text) + 1;
    char *block = dunlin__alloc_array(alloc, name_bytes + text_bytes, 1);
    if (block == NULL) {
        return false;
    }
    memcpy(block, name, name_bytes);
    memcpy(block + name_bytes, text, text_bytes);
    *out = (dunlin_property){.block = block,
                             .bytes = name_bytes + text_bytes,
                             .name = block,
                             .text = block + name_bytes};
    return true;
}

static dunlin_status fail_memory(const dunlin_trainer *trainer, const char *name)
{
    const uint64_t budget = trainer->options.budget_bytes;
    if (budget != 0) {
        return dunlin__fail(trainer->error, DUNLIN_BUDGET, "trainer", 0,
                            "the budget of %llu bytes has no room for property \"%.64s\"",
                            (unsigned long long)budget, name);
    }
    return dunlin__fail(trainer->error, DUNLIN_MEMORY, "trainer", 0,
                        "no memory for property \"%s\"", name);
}

dunlin_status dunlin__properties_set(const dunlin_trainer *trainer, dunlin_properties *properties,
                                     const char *name, const char *text)
{
    const dunlin_alloc *alloc = &trainer->counter.hooks;
    if (name == NULL || text == NULL || name[0] == '\0' ||
        strlen(name) > DUNLIN_TRAINER_MAX_PROPERTY_NAME ||
        strlen(text) > DUNLIN_TRAINER_MAX_PROPERTY_TEXT) {
        return dunlin__fail(trainer->error, DUNLIN_ARGUMENT, "trainer", 0,
                            "a property has a name of 1 to %d and a text of 0 to %d bytes",
                            DUNLIN_TRAINER_MAX_PROPERTY_NAME, DUNLIN_TRAINER_MAX_PROPERTY_TEXT);
    }
    dunlin_property *old = find(properties, name);
    if (old == NULL && properties->n == DUNLIN_TRAINER_MAX_PROPERTIES) {
        return dunlin__fail(trainer->error, DUNLIN_LIMIT, "trainer", 0,
                            "property \"%s\" would be one more than %d", name,
                            DUNLIN_TRAINER_MAX_PROPERTIES);
    }
    dunlin_property made;
    if (!make_block(alloc, name, text, &made)) {
        return fail_memory(trainer, name);
    }
    if (old != NULL) {
        dunlin__property_free(alloc, old);
        *old = made;
        return DUNLIN_OK;
    }
    void *items = properties->items;
    if (!dunlin__grow_array(alloc, &items, &properties->capacity, properties->n + 1, sizeof made)) {
        dunlin__property_free(alloc, &made);
        return fail_memory(trainer, name);
    }
    properties->items = items;
    properties->items[properties->n++] = made;
    return DUNLIN_OK;
}

dunlin_status dunlin_trainer_set_property(dunlin_trainer *trainer, const char *name,
                                          const char *text)
{
    DUNLIN_TRY(dunlin__trainer_look(trainer));
    DUNLIN_TRY(dunlin__trainer_check(trainer));
    return dunlin__properties_set(trainer, &trainer->properties, name, text);
}

const char *dunlin_trainer_property(const dunlin_trainer *trainer, const char *name)
{
    const dunlin_property *found = name != NULL ? find(&trainer->properties, name) : NULL;
    return found != NULL ? found->text : NULL;
}
