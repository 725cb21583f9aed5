/* with: parts/weak_strong.c */
/* features: weak functions and data; weak undefined symbols; a strong definition in another file */
#include "corpus.h"

__attribute__((weak)) uint64_t corpus_weak(uint64_t a) { return a + 1; }
__attribute__((weak)) uint64_t corpus_overridden(uint64_t a) { return a + 2; }
__attribute__((weak)) uint64_t corpus_weak_data = 44;
extern uint64_t corpus_nowhere(uint64_t) __attribute__((weak));
extern uint64_t corpus_nothing __attribute__((weak));

CASE(c_weak)
{
    for (size_t i = 0; i < words(n) && i < 100; i++) {
        uint64_t value = word(in, n, i);
        put(w, corpus_weak(value) ^ corpus_overridden(value));
        put(w, corpus_nowhere ? corpus_nowhere(value) : value * 3);
        corpus_weak_data = corpus_weak_data * 3 + value;
    }
    put(w, corpus_weak_data);
    put(w, &corpus_nothing == 0 ? 5 : corpus_nothing);
    corpus_weak_data = 44;
}
