/* Ids of runs that clients choose over HTTP. */
#ifndef GATEWAY_RUN_ID_H
#define GATEWAY_RUN_ID_H

#define RUN_ID_SIZE 65

/* The id of the run that belongs to an Idempotency-Key: the key itself behind "k-" where that is
 * one, otherwise one made from it. */
void run_id_of_key(const char *key, char id[RUN_ID_SIZE]);

#endif
