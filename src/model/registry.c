// SPDX-License-Identifier: BSD-3-Clause
/* The registry is a list of tables, one for each file of models. A table ends with an entry without
 * a name. */
#include "model/registry.h"

#include <string.h>

#define MODEL_TABLES(TABLE)                                                                        \
    TABLE(vit_models)                                                                              \
    TABLE(cnn_models)                                                                              \
    TABLE(resnet_models)

#define DECLARE(table) extern const struct model_entry table[];
#define ADDRESS(table) table,
MODEL_TABLES(DECLARE)
static const struct model_entry *const tables[] = {MODEL_TABLES(ADDRESS)};

enum { TABLES = sizeof tables / sizeof tables[0], MODELS_MOST = 128 };

const struct model_entry *registry_find(const char *name)
{
    for (int t = 0; t < TABLES; t++)
        for (const struct model_entry *entry = tables[t]; entry->name != NULL; entry++)
            if (strcmp(entry->name, name) == 0)
                return entry;
    return NULL;
}

const char *const *model_names(void)
{
    static const char *names[MODELS_MOST + 1];
    int count = 0;
    for (int t = 0; t < TABLES; t++)
        for (const struct model_entry *entry = tables[t]; entry->name != NULL; entry++) {
            ENSURE(count < MODELS_MOST, "more than %d models", MODELS_MOST);
            names[count++] = entry->name;
        }
    return names;
}

bool model_is_vit(const char *name)
{
    const struct model_entry *entry = registry_find(name);
    return entry != NULL && strcmp(entry->type->name, "vit") == 0;
}

bool model_recomputes(const char *name)
{
    const struct model_entry *entry = registry_find(name);
    return entry != NULL && entry->type->recomputes;
}
