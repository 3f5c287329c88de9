/* Sessions over HTTP have ids of up to 128 characters; init's names are shorter, and begin with a
 * letter or digit. */
#ifndef GATEWAY_SESSION_NAME_H
#define GATEWAY_SESSION_NAME_H

#define SESSION_NAME_SIZE 65

/* The name of the session with this id (is_session_id()): the id itself wherever init takes it,
 * otherwise one made from it. */
void session_name_of(const char *id, char name[SESSION_NAME_SIZE]);

#endif
