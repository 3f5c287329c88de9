/* What people type who know other tools (docker, systemctl, tmux, kill), and what it is here. */
#ifndef CTL_HINTS_H
#define CTL_HINTS_H

/* The verb that is meant by these one or two words, or NULL. */
const char *hint_verb(const char *typed);
/* What is meant by this letter as an option of the verb (NULL: none yet), or NULL. */
const char *hint_letter(const char *verb, char letter);

#endif
