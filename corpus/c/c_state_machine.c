/* features: enums; a state machine; goto */
#include "corpus.h"

enum state { START, NUMBER, WORD, QUOTED, ESCAPED, DONE };

static enum state step(enum state state, uint8_t c)
{
    switch (state) {
    case START:
    again:
        if (c >= '0' && c <= '9')
            return NUMBER;
        if ((c | 32) >= 'a' && (c | 32) <= 'z')
            return WORD;
        return c == '"' ? QUOTED : START;
    case NUMBER:
        if ((c >= '0' && c <= '9') || c == '.')
            return NUMBER;
        goto again;
    case WORD:
        if ((c | 32) >= 'a' && (c | 32) <= 'z')
            return WORD;
        goto again;
    case QUOTED: return c == '\\' ? ESCAPED : c == '"' ? DONE : QUOTED;
    case ESCAPED: return QUOTED;
    case DONE: goto again;
    }
    return START;
}

CASE(c_state_machine)
{
    uint64_t seen[6] = {0}, changes = 0;
    enum state state = (enum state)(w->seed % 2);

    for (size_t i = 0; i < n; i++) {
        enum state next = step(state, in[i]);
        changes += next != state;
        seen[next]++;
        state = next;
    }
    for (int i = 0; i < 6; i++)
        put(w, seen[i]);
    put(w, changes);
}
