/* What several rooms ask of names and say of sizes. */
#ifndef VITTRAIN_CORE_TEXT_H
#define VITTRAIN_CORE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* Does a name end so, with something before it? ".h5" is a file without a name, not a checkpoint.
 */
bool text_ends_with(const char *text, const char *ending);

/* Bytes as all tables and messages show memory: MiB. */
static inline double mib(size_t bytes)
{
    return (double)bytes / (1 << 20);
}

#endif
