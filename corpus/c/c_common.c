/* with: parts/common_other.c */
/* cflags: -fcommon */
/* features: common symbols */
#include "corpus.h"

uint64_t corpus_common[10];
uint32_t corpus_common_defined;

void corpus_common_step(uint64_t);

CASE(c_common)
{
    memset(corpus_common, 0, sizeof corpus_common);
    corpus_common_defined = 9;
    for (size_t i = 0; i < words(n); i++) {
        corpus_common[i % 10] += word(in, n, i);
        corpus_common_step(i);
    }
    put_bytes(w, corpus_common, sizeof corpus_common);
    put(w, corpus_common_defined);
}
