/*
 * An allocator that fails on demand: the n-th allocation from now on and all behind it. Not with
 * ASan, which has an allocator of its own (HAS_FAILING_MEMORY is 0 then), nor under valgrind.
 * For one program: including it replaces malloc() and its like.
 */
#ifndef TESTS_UNIT_FAILING_MEMORY_H
#define TESTS_UNIT_FAILING_MEMORY_H

#include <stdbool.h>
#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__)
#define HAS_FAILING_MEMORY 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAS_FAILING_MEMORY 0
#endif
#endif
#ifndef HAS_FAILING_MEMORY
#define HAS_FAILING_MEMORY 1
#endif

#if HAS_FAILING_MEMORY
static int memory_until_failure = -1; /* allocations that still succeed; -1: all */

void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_malloc(size_t size);

static bool memory_fails(void)
{
    if (memory_until_failure > 0)
        memory_until_failure--;
    return memory_until_failure == 0;
}

void *malloc(size_t size)
{
    return memory_fails() ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    return memory_fails() ? NULL : __libc_calloc(count, size);
}

void *realloc(void *old, size_t size)
{
    return memory_fails() ? NULL : __libc_realloc(old, size);
}

/* For ev_set_allocator(): libev ends the program when it gets no memory. */
static inline void *allocate_for_libev(void *old, long size)
{
    if (size > 0)
        return __libc_realloc(old, (size_t)size);
    free(old);
    return NULL;
}
#endif

#endif
