#include "gateway/session_name.h"

#include "base/hash.h"
#include "base/number.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void session_name_of(const char *id, char name[SESSION_NAME_SIZE])
{
    size_t n = strlen(id);
    if (name_check(id) == 0 && n < SESSION_NAME_SIZE)
        memcpy(name, id, n + 1);
    else
        snprintf(name, SESSION_NAME_SIZE, "http-%016" PRIx64 "%016" PRIx64,
                 hash_add(HASH_START, id, n), hash_add(~HASH_START, id, n));
}
