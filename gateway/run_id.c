#include "gateway/run_id.h"

#include "base/hash.h"
#include "base/number.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void run_id_of_key(const char *key, char id[RUN_ID_SIZE])
{
    size_t n = strlen(key);
    if (n + 2 < RUN_ID_SIZE) {
        memcpy(id, "k-", 2);
        memcpy(id + 2, key, n + 1);
        if (n > 0 && name_check(id) == 0)
            return;
    }
    snprintf(id, RUN_ID_SIZE, "h-%016" PRIx64 "%016" PRIx64, hash_add(HASH_START, key, n),
             hash_add(~HASH_START, key, n));
}
