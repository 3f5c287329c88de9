/*
 * An intrusive doubly linked list with a head node; empty means that it points to itself.
 * list_remove() leaves the node empty, so a second removal is harmless.
 */
#ifndef BASE_LIST_H
#define BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list {
    struct list *prev, *next;
};

static inline void list_init(struct list *l)
{
    l->prev = l->next = l;
}

static inline bool list_is_empty(const struct list *l)
{
    return l->next == l;
}

static inline void list_append(struct list *head, struct list *node)
{
    node->prev = head->prev;
    node->next = head;
    head->prev->next = node;
    head->prev = node;
}

static inline void list_prepend(struct list *head, struct list *node)
{
    list_append(head->next, node); /* before the first */
}

static inline void list_remove(struct list *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    list_init(node);
}

#define list_entry(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

/* NOLINTBEGIN(bugprone-macro-parentheses): `it` and `type` declare a variable. */
/* Walk all entries; the current one may be removed and freed in the body. */
#define list_each(it, head, type, member)                                                          \
    for (type *it = list_entry((head)->next, type, member),                                        \
              *it##_next = list_entry(it->member.next, type, member);                              \
         &it->member != (head);                                                                    \
         it = it##_next, it##_next = list_entry(it->member.next, type, member))
/* NOLINTEND(bugprone-macro-parentheses) */

#endif
