/* features: string functions of libc */
#include "corpus.h"
#include <stdlib.h>

CASE(c_strings)
{
    char text[600], copy[1300], *rest, *token;
    size_t length = n < sizeof text - 1 ? n : sizeof text - 1;

    memcpy(text, in, length);
    text[length] = 0;
    put(w, strlen(text));
    put(w, (uint64_t)(strchr(text, 'e') ? strchr(text, 'e') - text : -1));
    put(w, (uint64_t)(strrchr(text, ' ') ? strrchr(text, ' ') - text : -1));
    put(w, (uint64_t)(strstr(text, "an") ? strstr(text, "an") - text : -1));
    put(w, strspn(text, "abcdefgh0123"));
    put(w, strcspn(text, ",.;"));
    put(w, strcmp(text, "middle") < 0);
    put(w, strncmp(text, "the same", 3) == 0);
    put(w, memcmp(text, "hello", length < 5 ? length : 5) == 0);
    strcpy(copy, text);
    strcat(copy, "/");
    strncat(copy, text, 650);
    put_text(w, copy);
    memmove(copy + 3, copy, strlen(copy) + 1);
    put_text(w, copy);
    for (rest = copy; (token = strtok_r(rest, " /,", &rest)) != NULL;)
        put_text(w, token);
    put(w, strtoull(text, &rest, 0));
    put(w, (uint64_t)(rest - text));
    put_double(w, strtod(text, NULL));
    put(w, (uint64_t)(int64_t)atoi(text));
}
