/* Handlers that the table of route_files.c names, beside its own. */
#ifndef GATEWAY_FILE_ROUTES_H
#define GATEWAY_FILE_ROUTES_H

struct exchange;

void route_stat(struct exchange *x);        /* route_folders.c */
void route_list(struct exchange *x);        /* route_folders.c */
void route_mkdir(struct exchange *x);       /* route_folders.c */
void route_rename(struct exchange *x);      /* route_folders.c */
void route_delete_file(struct exchange *x); /* route_folders.c */
void route_watch(struct exchange *x);       /* route_watch.c */

#endif
