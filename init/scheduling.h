/* How the scheduler treats init itself. */
#ifndef INIT_SCHEDULING_H
#define INIT_SCHEDULING_H

/* Ask for a short time slice, 0.1 ms: init works for moments, and what wakes for a moment need not
 * wait for the whole slice of what runs (sched_setattr(2); Linux 6.12 and later, older ones take no
 * notice). Its share of the CPUs stays what it is, and children start with the usual slice. Nothing
 * changes where init was given a policy or a priority of its own, or may not ask. */
void scheduling_ask_for_short_slice(void);

#endif
